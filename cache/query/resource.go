package query

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// UserResource is one resource, as a user reads it.
type UserResource struct {
	User     string
	Resource schema.GroupVersionResource
}

// Clone is the resource for what stays: what is parsed from a URL would keep all of the URL in memory.
func (of UserResource) Clone() UserResource {
	r := &of.Resource
	r.Group, r.Version, r.Resource = strings.Clone(r.Group), strings.Clone(r.Version), strings.Clone(r.Resource)
	return of
}

// VersionSpace tells apart resources whose versions do not count together: events
// are often in an etcd of their own, and other apiservers behind the aggregator
// have stores of theirs.
func VersionSpace(r schema.GroupResource) string {
	switch {
	case r.Resource == "events":
		return "events"
	case !strings.Contains(r.Group, "."), strings.HasSuffix(r.Group, ".k8s.io") && !strings.Contains(r.Group, "metrics"):
		return "" // the apiserver's own
	}
	return r.Group
}

// VersionSpace is that of the resource.
func (of UserResource) VersionSpace() string { return VersionSpace(of.Resource.GroupResource()) }

// RestoredWith reports whether a resource is restored from a backup together with another
// one. Which server answers in another version space, and what it shows to whom, is not
// known: what one user sees there proves nothing about what others saw.
func (of UserResource) RestoredWith(other UserResource) bool {
	space := of.VersionSpace()
	return space == other.VersionSpace() && (space == "" || of.User == other.User)
}
