package cache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// viewKey is the query that a view answers. It is kept with the view as JSON.
type viewKey struct {
	User           string `json:"user"`
	Group          string `json:"group,omitempty"`
	Version        string `json:"version"`
	Resource       string `json:"resource"`
	Namespace      string `json:"namespace,omitempty"`
	Labels         string `json:"labels,omitempty"`
	Fields         string `json:"fields,omitempty"`
	Representation string `json:"representation"`
	// Single marks the view of objects that were read one by one. It is never
	// complete, and has no namespace or selector.
	Single bool `json:"single,omitempty"`
}

func (k *viewKey) resource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// of is the user and resource of the view.
func (k *viewKey) of() userResource { return userResource{k.User, k.resource()} }

// clone is the key for what stays: parts of a URL would keep all of it in memory.
func (k viewKey) clone() viewKey {
	for _, part := range []*string{&k.User, &k.Group, &k.Version, &k.Resource, &k.Namespace, &k.Labels, &k.Fields, &k.Representation} {
		*part = strings.Clone(*part)
	}
	return k
}

// scope is under which the view's objects are stored: once, whoever reads them.
func (k *viewKey) scope() string {
	return k.resource().String() + "|" + k.Representation
}

func (k *viewKey) representation() wire.Representation {
	r, err := wire.ParseRepresentation(k.Representation)
	if err != nil {
		return wire.Representation{} // never kept, so never asked for
	}
	return r
}

// bytes is the key as it is kept.
func (k *viewKey) bytes() []byte {
	b, err := json.Marshal(k)
	if err != nil {
		panic(err) // strings and a bool
	}
	return b
}

// id names the view on disk, and tells nothing to whoever does not have the salt.
func (k *viewKey) id(salt []byte) store.ID {
	mac := hmac.New(sha256.New, salt)
	mac.Write(k.bytes())
	return store.ID(mac.Sum(nil))
}

// nodeUser is the key of the node itself. Those of other users are identity's.
const nodeUser = quota.Node

// onlyName begins the field selector of a view of one object.
const onlyName = "metadata.name="

// proves reports whether what is not in the view is not there: it is of all objects, or of
// those of a name.
func (k *viewKey) proves() bool {
	return !k.Single && k.Labels == "" && (k.Fields == "" || strings.HasPrefix(k.Fields, onlyName) && !strings.Contains(k.Fields, ","))
}

// selects reports whether a pod is in a view that is lasting.
func (k *viewKey) selects(pod *corev1.Pod) bool {
	selector, err := fields.ParseSelector(k.Fields)
	return err == nil && (k.Namespace == "" || k.Namespace == pod.Namespace) && selector.Matches(fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
	})
}

// lasting reports whether an object stays in the view for as long as it exists: it is
// selected by nothing that can change.
func (k *viewKey) lasting() bool {
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
