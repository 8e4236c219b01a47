package query

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/store"
)

// Key is the query that a view answers. It is kept with the view as JSON.
type Key struct {
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

// GVR is the resource of the query.
func (k *Key) GVR() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.Resource}
}

// UserResource is the user and resource of the view.
func (k *Key) UserResource() UserResource { return UserResource{k.User, k.GVR()} }

// Clone is the key for what stays: parts of a URL would keep all of it in memory.
func (k Key) Clone() Key {
	for _, part := range []*string{&k.User, &k.Group, &k.Version, &k.Resource, &k.Namespace, &k.Labels, &k.Fields, &k.Representation} {
		*part = strings.Clone(*part)
	}
	return k
}

// Scope is under which the view's objects are stored: once, whoever reads them.
func (k *Key) Scope() string {
	return k.GVR().String() + "|" + k.Representation
}

// Repr is the representation of the objects.
func (k *Key) Repr() negotiation.Representation {
	r, err := negotiation.ParseRepresentation(k.Representation)
	if err != nil {
		return negotiation.Representation{} // never kept, so never asked for
	}
	return r
}

// Bytes is the key as it is kept.
func (k *Key) Bytes() []byte {
	b, err := json.Marshal(k)
	if err != nil {
		panic(err) // strings and a bool
	}
	return b
}

// ID names the view on disk, and tells nothing to whoever does not have the salt.
func (k *Key) ID(salt []byte) store.ID {
	mac := hmac.New(sha256.New, salt)
	mac.Write(k.Bytes())
	return store.ID(mac.Sum(nil))
}

// NodeUser is the key of the node itself. Those of other users are identity's.
const NodeUser = quota.Node

// OnlyName begins the field selector of a view of one object.
const OnlyName = "metadata.name="

// Proves reports whether what is not in the view is not there: it is of all objects, or of
// those of a name.
func (k *Key) Proves() bool {
	return !k.Single && k.Labels == "" && (k.Fields == "" || strings.HasPrefix(k.Fields, OnlyName) && !strings.Contains(k.Fields, ","))
}

// Selects reports whether a pod is in a view that is lasting.
func (k *Key) Selects(pod *corev1.Pod) bool {
	selector, err := fields.ParseSelector(k.Fields)
	return err == nil && (k.Namespace == "" || k.Namespace == pod.Namespace) && selector.Matches(fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
	})
}

// Lasting reports whether an object stays in the view for as long as it exists: it is
// selected by nothing that can change.
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
