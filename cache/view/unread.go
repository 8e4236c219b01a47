package view

import (
	"maps"
	"slices"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
)

// DropUnread drops a view that no client has read since the last call for it, or the members of
// a Single view that none has, unless they are needed: then Sweep keeps them, too. name is empty
// if a view is not of one object. DropUnread must be called by the goroutine of Sweep, and only
// while the cloud can be reached.
func (s *Views) DropUnread(v *View, needed func(namespace, name string) bool) {
	if v.Key.Single {
		v.dropUnreadMembers(needed)
		return
	}
	used, before := v.used.Load(), v.usedBefore
	if v.Holders() > 0 {
		used = 0 // it is read now
	}
	v.usedBefore = used
	switch {
	case used == 0 || used != before:
	case needed(v.Key.Namespace, v.Key.Name()):
		v.unused = 0
	default:
		s.Log.Info("dropped from the cache: nobody has read it for some time, and nobody on the node needs it", "view", v.String())
		s.retire(v)
	}
}

func (v *View) dropUnreadMembers(needed func(namespace, name string) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.reads.before
	v.reads.before = v.reads.n
	if v.stale.Load() || v.loadLocked() != nil {
		return
	}
	unread := slices.DeleteFunc(slices.Collect(maps.Keys(v.index)), func(name string) bool { return v.reads.last[name] > before })
	v.mu.Unlock()
	unread = slices.DeleteFunc(unread, func(name string) bool {
		if !needed(query.SplitMember(name)) {
			return false
		}
		v.unused = 0
		return true
	})
	v.mu.Lock()
	// Meanwhile one may have been read, or the view replaced.
	unread = slices.DeleteFunc(unread, func(name string) bool {
		_, ok := v.index[name]
		return !ok || v.reads.last[name] > before
	})
	v.dropMembersLocked(unread)
}

// dropMembersLocked drops members of a Single view. Records keep that they were seen.
func (v *View) dropMembersLocked(names []string) {
	if len(names) == 0 || v.stale.Load() || !v.loaded {
		return
	}
	for _, name := range names {
		v.records.SeenUncached(v.Key.UserResource(), v.index[name].Version)
		v.remove(name)
	}
	v.changeSingleLocked(&store.Change{Delete: names})
}
