package query

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// UserResource is one resource, as one user reads it.
type UserResource struct {
	User     string
	Resource schema.GroupVersionResource
}

// Clone copies the strings of the resource: parts of a URL would keep the whole URL in memory.
func (of UserResource) Clone() UserResource {
	r := &of.Resource
	r.Group, r.Version, r.Resource = strings.Clone(r.Group), strings.Clone(r.Version), strings.Clone(r.Resource)
	return of
}

// VersionSpace returns the name of the storage whose resourceVersions a resource has: only
// versions from the same storage can be compared. Events are often in an etcd of their own,
// and apiservers behind the aggregator have their own storage.
func VersionSpace(r schema.GroupResource) string {
	switch {
	case r.Resource == "events":
		return "events"
	case !strings.Contains(r.Group, "."), strings.HasSuffix(r.Group, ".k8s.io") && !strings.Contains(r.Group, "metrics"):
		return "" // the apiserver's own
	}
	return r.Group
}

// VersionSpace returns the version space of the resource.
func (of UserResource) VersionSpace() string { return VersionSpace(of.Resource.GroupResource()) }

// RestoredWith reports whether a resource is restored from a backup together with another
// one. In version spaces other than the apiserver's own, it is unknown which server answers
// and what it shows to whom: what one user sees there proves nothing about other users.
func (of UserResource) RestoredWith(other UserResource) bool {
	space := of.VersionSpace()
	return space == other.VersionSpace() && (space == "" || of.User == other.User)
}
