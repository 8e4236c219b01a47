package fuzzcache

import "k8s.io/apimachinery/pkg/watch"

// While the cloud is away, a watch shows what the node has reported: as events about objects
// at versions that were seen before. A minute after the return whatever etcd does not have
// is put right in the same way. Meanwhile the client has what etcd does not, of the objects
// in f.shown.

// beginShown finds what a list has shown for reported statuses. It was judged before.
func (f *follower) beginShown(rev int64) {
	if f.q.resource != pods {
		return
	}
	h := f.c.w.history
	for key, got := range f.items {
		stored := stateAt(h.of(pods.name, key), rev)
		if stored != nil && stored.same(got) {
			continue
		}
		f.shown[key] = stored != nil && f.c.explains(stored, got, foul) || f.c.explainsAdded(f.q, got, foul)
	}
	for key, stored := range h.list(f.q, rev) {
		if f.items[key] == nil && f.c.explainsLeft(f.q, stored, foul) {
			f.shown[key] = true
		}
	}
}

// isShown reports whether the client may have got, or nothing, of an object that etcd had
// like that.
func (f *follower) isShown(key string, stored, got *state) bool {
	if !f.shown[key] {
		return false
	}
	return got == nil || stored.sameButStatus(got)
}

// status takes an event that shows a reported status, or takes it back. It returns false
// where it is none of these.
func (f *follower) status(kind watch.EventType, got *state) bool {
	key := got.key()
	stored := stateAt(f.c.w.history.of(f.q.resource.name, key), got.rev)
	if f.q.resource != pods || got.metadata || stored == nil || stored.rev != got.rev {
		return false
	}
	takenBack := stored.same(got)
	had := f.items[key]
	// A pod that the client had for its status alone has gone, and another one is shown in its
	// place. A hub that has just started does not know what its client had.
	byStatus := f.q.byStatus() && f.shown[key]
	replaces := byStatus && had != nil && had.uid != got.uid && kind == watch.Added
	// The node reads what its report makes of a pod's latest copy, as a GET does, and the pod need not be as
	// old as what else the client has.
	renews := byStatus && !takenBack && had != nil && had.uid == got.uid && had.rev < got.rev && f.c.isNode()
	// What a hub puts right may be right: it does not know what its client's list has shown.
	repeats := had != nil && kind == watch.Modified && had.same(got)
	switch {
	case takenBack && (got.rev > f.at || !f.shown[key] && !repeats):
		return false
	case !takenBack && !f.c.explains(stored, got, foul):
		return false
	case had != nil && !replaces && !renews && (had.uid != got.uid || kind != watch.Deleted && had.rev != got.rev):
		return false
	case kind != watch.Deleted && !f.q.selects(got):
		return false
	// A hub does not know which of several statuses its client's list has shown.
	case (had == nil) != (kind == watch.Added) && !f.q.byStatus():
		return false
	}
	f.shown[key] = !takenBack || kind == watch.Deleted
	if kind == watch.Deleted {
		delete(f.items, key)
	} else {
		f.items[key] = got
	}
	f.c.w.did("reported statuses in watches")
	return true
}
