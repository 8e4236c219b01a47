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

// Key identifies a view. It is stored with the view as JSON.
type Key struct {
	User           string `json:"user"`
	Group          string `json:"group,omitempty"`
	Version        string `json:"version"`
	Resource       string `json:"resource"`
	Namespace      string `json:"namespace,omitempty"`
	Labels         string `json:"labels,omitempty"`
	Fields         string `json:"fields,omitempty"`
	Representation string `json:"representation"`
	// Single marks the view of objects that were read one by one. It is never complete, and
	// has no namespace or selector.
	Single bool `json:"single,omitempty"`
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
	for _, part := range []*string{&k.User, &k.Group, &k.Version, &k.Resource, &k.Namespace, &k.Labels, &k.Fields, &k.Representation} {
		*part = strings.Clone(*part)
	}
	return k
}

// Scope returns the scope of the view's objects in the store. It does not depend on the
// user, so objects that several users read are stored once.
func (k *Key) Scope() string {
	return k.GVR().String() + "|" + k.Representation
}

// Repr returns the representation of the objects, or the zero value if it cannot be parsed:
// views with that are never kept.
func (k *Key) Repr() negotiation.Representation {
	r, err := negotiation.ParseRepresentation(k.Representation)
	if err != nil {
		return negotiation.Representation{}
	}
	return r
}

// Bytes returns the key as it is stored.
func (k *Key) Bytes() []byte {
	b, err := json.Marshal(k)
	if err != nil {
		panic(err) // strings and a bool
	}
	return b
}

// ID returns the ID of the view on disk. It reveals nothing about the key without the salt.
func (k *Key) ID(salt []byte) store.ID {
	mac := hmac.New(sha256.New, salt)
	mac.Write(k.Bytes())
	return store.ID(mac.Sum(nil))
}

// Proves reports whether the view, once complete, proves that an object does not exist: it
// selects all objects, or all objects of one name.
func (k *Key) Proves() bool {
	return !k.Single && k.Labels == "" && (k.Fields == "" || strings.HasPrefix(k.Fields, OnlyName) && !strings.Contains(k.Fields, ","))
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

// Selects reports whether a pod belongs to a view for which Lasting is true.
func (k *Key) Selects(pod *corev1.Pod) bool {
	selector, err := fields.ParseSelector(k.Fields)
	return err == nil && (k.Namespace == "" || k.Namespace == pod.Namespace) && selector.Matches(fields.Set{
		"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
	})
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
