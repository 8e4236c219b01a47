package view

import (
	"cmp"
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
)

// Description describes a view, or the copies of a resource, for operators, without contents.
type Description struct {
	// User is "node", or the name and UID of the user of a bearer token.
	User          string `json:"user"`
	Resource      string `json:"resource"` // resource.version.group; of single objects resource.group
	Namespace     string `json:"namespace,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Representation is the encoding of objects whose types the hub does not know, or the version of PartialObjectMetadata.
	Representation  string `json:"representation,omitempty"`
	Single          bool   `json:"single,omitempty"` // objects that were read by GET
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Complete views answer their query while the cloud is away.
	Complete bool  `json:"complete"`
	Denied   bool  `json:"denied,omitempty"` // the apiserver refused the last request for it
	Objects  int   `json:"objects"`
	Bytes    int64 `json:"bytes"`
	// Updated is when an apiserver last confirmed or changed the view, LastUsed when a client
	// last requested it.
	Updated  time.Time `json:"updated,omitzero"`
	LastUsed time.Time `json:"lastUsed"`
	// Requests is how many requests update or read the view now.
	Requests int `json:"requests"`
}

// Describe describes all stored views, and copies of resources, ordered by user and resource.
func (s *Views) Describe() []Description {
	all := []Description{}
	for _, v := range s.All() {
		if one, stored := v.describe(); stored {
			all = append(all, one)
		}
	}
	for _, r := range s.allResources() {
		if one, stored := r.describe(); stored {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Description) int {
		return cmp.Or(
			cmp.Compare(a.User, b.User), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.FieldSelector, b.FieldSelector), cmp.Compare(a.LabelSelector, b.LabelSelector),
			cmp.Compare(a.Representation, b.Representation),
		)
	})
	return all
}

// describe describes the view, and reports whether it is stored.
func (v *View) describe() (_ Description, stored bool) {
	v.of.lock()
	defer v.of.unlock()
	k := &v.Key
	resource := k.Resource + "." + k.Version
	if k.Group != "" {
		resource += "." + k.Group
	}
	d := Description{
		User: identity.Readable(k.User), Resource: resource, Namespace: k.Namespace, LabelSelector: k.Labels, FieldSelector: k.Fields,
		Representation: cmp.Or(k.Encoding, k.Metadata), ResourceVersion: v.version,
		Complete: v.usableLocked(), Denied: v.header.Denied,
		Objects: len(v.members), Bytes: v.bytes,
		Updated: v.header.Updated, LastUsed: time.Unix(0, v.used.Load()).UTC(), Requests: v.Holders(),
	}
	return d, v.onDisk
}

// describe describes the objects of a resource that were read by themselves, and reports whether there are any.
func (r *resource) describe() (_ Description, stored bool) {
	r.lock()
	defer r.unlock()
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	now, last := r.readers()
	return Description{
		User: identity.Readable(r.resourceKey.user), Resource: resource, Single: true, Objects: r.copied, Bytes: r.bytes,
		Updated: r.updated, LastUsed: time.Unix(0, last).UTC(), Requests: now,
	}, r.copied > 0
}
