package query

import (
	"cmp"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Key identifies a view. It is stored with the view as JSON. It has no encoding where the hub can convert one into the other.
type Key struct {
	User      string `json:"user"`
	Group     string `json:"group,omitempty"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Labels    string `json:"labels,omitempty"`
	Fields    string `json:"fields,omitempty"`
	Metadata  string `json:"metadata,omitempty"` // see wire.Representation
	// Encoding is that of objects whose types the hub does not know: it cannot be converted.
	Encoding string `json:"encoding,omitempty"`
}

// NodeUser is the user key of the node. Package identity makes those of other users.
const NodeUser = quota.Node

// OnlyName is the prefix of the field selector of a view of one object.
const OnlyName = "metadata.name="

// GVR returns the resource of the view.
func (k *Key) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// UserResource returns the user and resource of the view.
func (k *Key) UserResource() UserResource { return UserResource{k.User, k.GVR()} }

// Clone copies the strings: parts of a URL would keep the whole URL in memory.
func (k Key) Clone() Key {
	for _, part := range []*string{&k.User, &k.Group, &k.Version, &k.Resource, &k.Namespace, &k.Labels, &k.Fields, &k.Metadata, &k.Encoding} {
		*part = strings.Clone(*part)
	}
	return k
}

// IsValid reports whether there can be a view of this form.
func (k *Key) IsValid() bool {
	r, err := wire.ParseRepresentation(cmp.Or(k.Encoding, wire.JSON.String()))
	if err != nil || r.Metadata != "" {
		return false
	}
	r.Metadata = k.Metadata
	_, err = wire.ParseRepresentation(r.String())
	return err == nil
}

// WithoutForm returns the key without the form of its objects.
func (k Key) WithoutForm() Key {
	k.Metadata, k.Encoding = "", ""
	return k
}

// Bytes returns the key as it is stored.
func (k *Key) Bytes() []byte {
	b, err := json.Marshal(k)
	if err != nil {
		panic(err) // strings and a bool
	}
	return b
}

// Proves reports whether the view, once complete, proves that an object does not exist: it
// selects all objects, or all objects of one name.
func (k *Key) Proves() bool {
	return k.Labels == "" && (k.Fields == "" || strings.HasPrefix(k.Fields, OnlyName) && !strings.Contains(k.Fields, ","))
}

// Covers reports whether the query may select a member of this name.
func (k *Key) Covers(member string) bool {
	namespace, name := SplitMember(member)
	only := k.Name()
	return (k.Namespace == "" || k.Namespace == namespace) && (only == "" || only == name)
}

// Name returns the name of the only object that the view selects, or "".
func (k *Key) Name() string {
	selector, err := fields.ParseSelector(k.Fields)
	if err != nil {
		return ""
	}
	name, _ := selector.RequiresExactMatch("metadata.name")
	return name
}

// OnlyMember returns the only member that the view can have, or "" if that is not known.
func (k *Key) OnlyMember() string {
	if name := k.Name(); name != "" && k.Namespace != "" {
		return MemberName(k.Namespace, name)
	}
	return ""
}

// Selects reports whether a pod belongs to a view for which Lasting is true.
func (k *Key) Selects(pod *corev1.Pod) bool {
	selector, err := fields.ParseSelector(k.Fields)
	return err == nil && (k.Namespace == "" || k.Namespace == pod.Namespace) && selector.Matches(fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
	})
}

// OfNode reports whether the view selects pods of one node.
func (k *Key) OfNode() bool {
	selector, err := fields.ParseSelector(k.Fields)
	if err != nil || k.Group != "" || k.Resource != "pods" {
		return false
	}
	node, _ := selector.RequiresExactMatch("spec.nodeName")
	return node != ""
}

// Lasting reports whether an object stays in the view for as long as it exists, because
// nothing that the view selects by can change.
func (k *Key) Lasting() bool {
	selector, err := fields.ParseSelector(k.Fields)
	if err != nil || k.Labels != "" {
		return false
	}
	for _, r := range selector.Requirements() {
		switch {
		case r.Field == "metadata.name", r.Field == "metadata.namespace":
		case r.Field == "spec.nodeName" && k.Group == "" && k.Resource == "pods" && r.Value != "" && r.Operator != selection.NotEquals:
		default:
			return false
		}
	}
	return true
}

// MemberName returns an object's name in views: "namespace/name", or "name".
func MemberName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// SplitMember is the reverse of MemberName.
func SplitMember(member string) (namespace, name string) {
	if namespace, name, ok := strings.Cut(member, "/"); ok {
		return namespace, name
	}
	return "", member
}
