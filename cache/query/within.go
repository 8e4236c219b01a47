package query

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/edgehub-io/edgehub/cache/wire"
)

// Filter selects the objects of a query among those of one that selects more. A nil Filter selects
// all of them.
type Filter struct {
	namespace string // "" is all
	labels    labels.Selector
	fields    fields.Selector // of metadata.name and metadata.namespace only
}

// Within returns the Filter that selects the objects of k's query among those of a wider view of the
// same user and resource. ok is false if that view may lack some of them, or if their metadata do
// not show which ones they are.
func (k *Key) Within(wider *Key) (f *Filter, ok bool) {
	same := wider.Namespace == k.Namespace && wider.Labels == k.Labels && wider.Fields == k.Fields
	switch {
	case wider.UserResource() != k.UserResource(),
		wider.Namespace != "" && wider.Namespace != k.Namespace,
		wider.Labels != "" && wider.Labels != k.Labels,
		wider.Fields != "" && wider.Fields != k.Fields:
		return nil, false
	case same:
		return nil, true
	}
	f = &Filter{k.Namespace, labels.Everything(), fields.Everything()}
	var err error
	if wider.Labels != k.Labels {
		if f.labels, err = labels.Parse(k.Labels); err != nil {
			return nil, false
		}
	}
	if wider.Fields != k.Fields {
		if f.fields, err = fields.ParseSelector(k.Fields); err != nil || !ofMetadata(f.fields) {
			return nil, false
		}
	}
	return f, true
}

func ofMetadata(s fields.Selector) bool {
	for _, r := range s.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return false
		}
	}
	return true
}

// Name reports whether the query may select a member of this name.
func (f *Filter) Name(member string) bool {
	if f == nil {
		return true
	}
	namespace, name := SplitMember(member)
	return (f.namespace == "" || f.namespace == namespace) &&
		(f.fields.Empty() || f.fields.Matches(fields.Set{"metadata.name": name, "metadata.namespace": namespace}))
}

// ByName reports whether names alone show what the query selects.
func (f *Filter) ByName() bool { return f == nil || f.labels.Empty() }

// Labels reports whether the query selects an object with these labels, if it selects its name.
func (f *Filter) Labels(m *wire.Meta) bool {
	if f.ByName() {
		return true
	}
	set := labels.Set{}
	for key, value := range m.Labels() {
		set[string(key)] = string(value)
	}
	return f.labels.Matches(set)
}
