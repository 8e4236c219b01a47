package view

import (
	"strings"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
)

// Right is what a user may read: the query of a view, or one object that it has read by a GET.
type Right struct {
	Key    query.Key // without a form
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
// has last answered by each since the hub started. Single Events are left out: whoever
// records them has them from its own writes, seldom by a right to read, and never reads them.
func (s *Views) Rights() map[Right]time.Time {
	rights := map[Right]time.Time{}
	for _, v := range s.All() {
		if v.Key.User != query.NodeUser {
			v.addRight(rights)
		}
	}
	for _, r := range s.allResources() {
		if r.resourceKey.user != query.NodeUser && r.Resource != "events" {
			r.addRights(rights)
		}
	}
	return rights
}

// Confirmed returns when an apiserver has last answered by a right since the hub started.
func (s *Views) Confirmed(right Right) time.Time {
	all := map[Right]time.Time{}
	if right.Member == "" {
		for _, v := range s.byRight(right) {
			v.addRight(all)
		}
	} else if r := s.find(right.Key.UserResource()); r != nil {
		r.unlock()
		r.addRights(all)
	}
	return all[right]
}

// byRight returns the views that serve something by a right, in all forms.
func (s *Views) byRight(right Right) (views []*View) {
	for _, v := range s.Of(right.Key.UserResource()) {
		if v.Key.WithoutForm() == right.Key {
			views = append(views, v)
		}
	}
	return views
}

func (v *View) addRight(to map[Right]time.Time) {
	v.of.lock()
	defer v.of.unlock()
	right := Right{Key: v.Key.WithoutForm()}
	if v.complete && !v.header.Denied {
		to[right] = latest(to[right], v.confirmed)
	}
}

func (r *resource) addRights(to map[Right]time.Time) {
	r.lock()
	defer r.unlock()
	for name, e := range r.entries {
		if len(e.copies) == 0 || e.Refused || r.ByName && !e.Allowed {
			continue
		}
		_, version, _ := strings.Cut("/"+e.copies[0].Type.APIVersion, "/")
		if _, after, ok := strings.Cut(version, "/"); ok {
			version = after
		}
		right := Right{query.Key{User: r.resourceKey.user, Group: r.Group, Version: version, Resource: r.Resource}, name}
		to[right] = latest(to[right], e.shown)
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Revoke records that a user does not have a right any more, as if a request had been refused.
func (s *Views) Revoke(right Right) {
	if right.Member == "" {
		s.Deny(&right.Key)
		return
	}
	s.Refused(right.Key.UserResource(), right.Member)
}

// Unconfirmed drops what is served by a right that could not be confirmed for long. The client of an open watch
// is then asked to list.
func (s *Views) Unconfirmed(right Right) {
	if right.Member == "" {
		for _, v := range s.byRight(right) {
			s.retire(v)
		}
	} else if r := s.find(right.Key.UserResource()); r != nil {
		r.dropCopiesLocked(right.Member)
		r.unlock()
	}
}
