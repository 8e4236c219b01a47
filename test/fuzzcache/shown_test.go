package fuzzcache

import "k8s.io/apimachinery/pkg/watch"

// While the cloud is away, a watch shows what the node has reported: as MODIFIED of objects
// at versions that were seen before. After the return whatever etcd does not have
// is put right in the same way. Meanwhile the client has what etcd does not, of the objects
// in f.shown. Which objects it has follows from etcd alone.

// beginShown finds what a list has shown for reported statuses. It was judged before.
func (f *follower) beginShown(rev int64) {
	if f.q.resource != pods {
		return
	}
	for key, got := range f.items {
		stored := stateAt(f.c.w.history.of(pods.name, key), rev)
		f.shown[key] = stored != nil && !stored.same(got) && f.c.explains(stored, got, foul)
	}
}

// isShown reports whether the client may have got of an object that etcd had like that.
func (f *follower) isShown(key string, stored, got *state) bool {
	return f.shown[key] && got != nil && stored.sameButStatus(got)
}

// status takes an event that shows a reported status, or takes it back. It returns false
// where it is none of these.
func (f *follower) status(kind watch.EventType, got *state) bool {
	key := got.key()
	stored, had := stateAt(f.c.w.history.of(f.q.resource.name, key), got.rev), f.items[key]
	if f.q.resource != pods || kind != watch.Modified || got.metadata || stored == nil || stored.rev != got.rev ||
		had == nil || had.uid != got.uid || had.rev != got.rev {
		return false
	}
	takenBack := stored.same(got)
	switch {
	// What a hub puts right may be right: it does not know what its client's list has shown.
	case takenBack && !f.shown[key] && !had.same(got):
		return false
	case !takenBack && !f.c.explains(stored, got, foul):
		return false
	}
	f.shown[key], f.items[key] = !takenBack, got
	f.c.w.did("reported statuses in watches")
	return true
}
