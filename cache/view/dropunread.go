package view

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
)

// DropUnread drops a view that no client has read since the last call for it, unless it is needed: then Sweep keeps it, too. name is empty
// if a view is not of one object. DropUnread must be called by the goroutine of Sweep, and only
// while the cloud can be reached.
func (s *Views) DropUnread(v *View, needed func(namespace, name string) bool) {
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

// DropUnreadObjects is DropUnread for the objects that users have read by themselves, of resources and users that are chosen.
func (s *Views) DropUnreadObjects(choose func(user string, resource schema.GroupResource) bool, needed func(user, namespace, name string) bool) {
	for _, r := range s.allResources() {
		if choose(r.resourceKey.user, r.GroupResource) {
			r.dropUnread(needed)
		}
	}
}

func (r *resource) dropUnread(needed func(user, namespace, name string) bool) {
	r.lock()
	before := r.before
	r.before = r.reads
	var unread []string
	for name, e := range r.entries {
		if len(e.copies) > 0 && e.read <= before {
			unread = append(unread, name)
		}
	}
	r.unlock()
	unread = slices.DeleteFunc(unread, func(name string) bool { // it may read other views
		namespace, base := query.SplitMember(name)
		if !needed(r.resourceKey.user, namespace, base) {
			return false
		}
		r.unused = 0
		return true
	})
	r.lock()
	defer r.unlock()
	for _, name := range unread {
		if e := r.entries[name]; e != nil && e.read <= before { // else it was read meanwhile
			r.dropCopiesLocked(name)
		}
	}
}
