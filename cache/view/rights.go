package view

import (
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
)

// Right is what a user may read: the query of a view, or one object that it has read by a GET.
type Right struct {
	Key    query.Key // without a representation
	Member string    // the object; empty for the query of a view
}

// String is for logs.
func (r *Right) String() string {
	q := query.Query{Verb: "list", Resource: r.Key.GVR(), Namespace: r.Key.Namespace, Labels: r.Key.Labels, Fields: r.Key.Fields}
	if r.Member != "" {
		q.Verb = "get"
		q.Namespace, q.Name = query.SplitMember(r.Member)
	}
	return q.String()
}

// Rights returns by which rights something is served to users other than the node, and when an apiserver
// has last answered by each since the hub started. It may read views from disk. Single Events are left out: whoever
// records them has them from its own writes, seldom by a right to read, and never reads them.
func (s *Views) Rights() map[Right]time.Time {
	rights := map[Right]time.Time{}
	for _, v := range s.All() {
		if v.Key.User != query.NodeUser {
			v.addRights(rights)
		}
	}
	for r := range rights {
		namespace, _ := query.SplitMember(r.Member)
		if r.Member != "" && s.Records.Known(r.Key.UserResource(), namespace, r.Member).Refused {
			delete(rights, r)
		}
	}
	return rights
}

// Confirmed returns when an apiserver has last answered by a right since the hub started.
func (s *Views) Confirmed(r Right) time.Time {
	all := map[Right]time.Time{}
	for _, v := range s.byRight(r) {
		v.addRights(all)
	}
	return all[r]
}

// byRight returns the views that serve something by a right, in all representations.
func (s *Views) byRight(r Right) (views []*View) {
	for _, v := range s.Of(r.Key.UserResource()) {
		k := v.Key
		if k.Representation = ""; k == r.Key {
			views = append(views, v)
		}
	}
	return views
}

func (v *View) addRights(to map[Right]time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r := Right{Key: v.Key}
	r.Key.Representation = ""
	switch {
	case !v.Key.Single:
		if v.complete && !v.header.Denied {
			to[r] = latest(to[r], v.confirmed)
		}
	case v.Key.Resource != "events" && v.loadLocked() == nil:
		for r.Member = range v.index {
			to[r] = latest(to[r], v.reads.shown[r.Member])
		}
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Revoke records that a user does not have a right any more, as if a request had been refused.
func (s *Views) Revoke(r Right) {
	if r.Member == "" {
		s.Deny(&r.Key)
		return
	}
	s.Records.Refused(r.Key.UserResource(), r.Member)
}

// Unconfirmed drops what is served by a right that could not be confirmed for long. The client of an open watch
// is then asked to list.
func (s *Views) Unconfirmed(r Right) {
	for _, v := range s.byRight(r) {
		if r.Member == "" {
			s.retire(v)
		} else {
			v.dropMember(r.Member)
		}
	}
}

func (v *View) dropMember(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.index[name]; ok {
		v.dropMembersLocked([]string{name})
	}
}
