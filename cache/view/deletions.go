package view

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// recordDeletions records which members of the view are missing from a list. It matters for
// views that cannot prove absence: where objects leave the view only by deletion, the object
// that the view had is recorded as deleted. Another object of the same name may exist
// elsewhere: if the UID of the deleted one is unknown, copies of that name are in doubt.
func (s *Views) recordDeletions(b *Builder) {
	of := b.View.Key.UserResource()
	for name, uid := range b.deleted {
		if s.Gone(of, name, b.deletedAt, uid, true); uid == "" {
			s.Records.Doubt(of, name, s.Records.Highest(of.Resource).Version())
		}
	}
	for name, version := range b.left {
		s.RecordLeft(b.View, name, version)
	}
}

// recordDeletedPods records as deleted the pods that were read by GET and that a list of a
// node's pods should contain but does not: a pod leaves such a view only by deletion. The
// pods need not have been members of the view, which may have been evicted meanwhile.
func (s *Views) recordDeletedPods(b *Builder, version string) {
	of, key := b.View.Key.UserResource(), &b.View.Key
	if of.Resource.GroupResource() != (schema.GroupResource{Resource: "pods"}) || key.Proves() || !key.Lasting() {
		return
	}
	for _, single := range s.Of(of) {
		if !single.Key.Single || single.Repr.Metadata != "" {
			continue
		}
		for _, name := range single.provenUpTo(version) {
			if _, ok := b.Items[name]; ok {
				continue
			}
			// Since the copy was read, a new pod of that name may have started on another node.
			if pod := single.pod(name); pod != nil && key.Selects(pod) {
				s.Gone(of, name, pod.ResourceVersion, pod.UID, true)
			}
		}
	}
}

// RecordLeft records that an object, which the view had at a version, no longer matches the
// view's query, though it may still exist. Copies older than that version are in doubt.
func (s *Views) RecordLeft(v *View, name, version string) {
	if !v.Key.Lasting() {
		s.doubtOlder(v.Key.UserResource(), name, version)
	}
}

// RecordShown records that a client was shown the items of a list, or of initial events, of which the end may never
// come: older copies are in doubt.
func (s *Views) RecordShown(b *Builder) {
	for name, item := range b.Items {
		s.doubtOlder(b.View.Key.UserResource(), name, item.Version)
	}
}

// doubtOlder puts copies of an object in doubt that are older than a version.
func (s *Views) doubtOlder(of query.UserResource, name, version string) {
	copies := s.Copies(of, name)
	if newest := newestOf(copies.All); newest != "" && versions.Valid(version) && versions.Compare(newest, version) < 0 {
		s.Records.Doubt(of, name, versions.Preceding(version))
	}
}
