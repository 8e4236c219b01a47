package derived

import (
	"slices"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Selected is what derived objects are shown of: a view, or the part of a view that another query selects. Its members stay
// the same, also where a selector asks for a status that the node has changed.
type Selected struct {
	View   *view.View
	Member func(name string) (view.Revision, bool)
}

// updates returns the updates of a view's resource, unordered.
func (o *Objects) updates(v *view.View) []*Update {
	switch {
	case ShowsSlices(v):
		return o.sliceUpdates(v)
	case Shows(v):
		return o.reportsOf(v.Key.GVR(), false)
	}
	return nil
}

// recent returns the updates that a client which has read a view up to the version at may have
// seen, unordered: in a list or watch of an outage that has ended by now, or from the last process.
func (o *Objects) recent(v *view.View, at string) []*Update {
	if ShowsSlices(v) {
		return o.recentSlices(v, at)
	}
	return slices.DeleteFunc(o.reportsOf(v.Key.GVR(), true), func(u *Update) bool {
		rev, ok := v.Member(u.Name)
		return !ok || versions.Compare(rev.Version, u.version) > 0
	})
}

// KeepsShown reports whether watches keep what they have shown of a view: the cloud is away, or has not
// caught up yet. Of its own pods and Node, the node itself reads what the cloud has, so that kubelet writes what it lacks.
func (o *Objects) KeepsShown(v *view.View) bool {
	o.lockCurrent()
	defer o.mu.Unlock()
	return (ShowsSlices(v) || v.Key.User != query.NodeUser) && (o.slices.away || !o.slicesSettledLocked())
}

// lies reports whether an update lies over a version of its object in a view.
func (u *Update) lies(v *view.View, version string) bool {
	return u.over(u.uid, version, v.Key.User == query.NodeUser)
}

// Status is what is derived in a snapshot, by the names of members.
type Status map[string]*Update

// List returns what is derived in a snapshot.
func (o *Objects) List(of *Selected, snap *view.Snapshot) Status {
	s := Status{}
	for _, u := range o.updates(of.View) {
		if m, ok := view.FindMember(snap.Members, u.Name); ok && u.lies(of.View, m.Version) {
			s[u.Name] = u
		}
	}
	return s
}
