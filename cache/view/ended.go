package view

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/versions"
)

// Ended notes which members a list had no more, of a view that objects leave only by their
// deletion, and which cannot prove that something is not there by itself. What has gone is
// the object that the view had. Another one of that name may be elsewhere; where it is not
// known which one a copy is of, it is in doubt.
func (s *Views) Ended(st *Stage) {
	of := st.View.Key.UserResource()
	for name, uid := range st.ended {
		if s.Gone(of, name, st.endedAt, uid, true); uid == "" {
			s.Records.Doubt(of, name, s.Records.Highest(of.Resource).Version())
		}
	}
	for name, version := range st.left {
		s.Outlived(st.View, name, version)
	}
}

// EndedCopies records as deleted the pods that were read one by one, and that a list of a
// node's pods should have and does not: a pod leaves such a view only by its deletion. The
// pods need not have been members of the view, which may have been evicted meanwhile.
func (s *Views) EndedCopies(st *Stage, version string) {
	of, key := st.View.Key.UserResource(), &st.View.Key
	if of.Resource.GroupResource() != (schema.GroupResource{Resource: "pods"}) || key.Proves() || !key.Lasting() {
		return
	}
	for _, single := range s.resource(of.User, of.Resource) {
		if !single.Key.Single || single.Repr.Metadata != "" {
			continue
		}
		for _, name := range single.provenUpTo(version) {
			if _, ok := st.Items[name]; ok {
				continue
			}
			// Since the version of the copy another pod of that name may be on another node.
			if pod := single.pod(name); pod != nil && key.Selects(pod) {
				s.Gone(of, name, pod.ResourceVersion, pod.UID, true)
			}
		}
	}
}

// Outlived is called when a view does not show an object any more, which it had at a
// version, though the object may be there. Older copies are not what the user saw last.
func (s *Views) Outlived(v *View, name, version string) {
	if !versions.Valid(version) || v.Key.Lasting() {
		return
	}
	of := v.Key.UserResource()
	copies := s.Copies(of, name)
	if newest := newestOf(copies.All); newest != "" && versions.Compare(newest, version) < 0 {
		s.Records.Doubt(of, name, versions.Preceding(version))
	}
}
