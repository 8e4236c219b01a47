package view

import (
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Moment is what was known when a request was sent: of its resource, of the views that the answer may update, and of the object.
type Moment struct {
	highest uint64 // version of the resource
	changed uint64 // Views.changed
	history int64  // see Views.historyOf
	views   map[query.Key]Began
	// readAt is the version of the object that is read or written, if the answer is consistent.
	readAt string
}

// Moment returns the current one, for a request that is about to be sent. q is nil if the answer is not kept. It is called for all
// users' requests, so it stores nothing.
func (s *Views) Moment(of query.UserResource, q *query.Query) Moment {
	m := Moment{highest: s.Highest(of.Resource).number(), changed: s.changed.Load(), history: s.historyOf(of)}
	switch {
	case q == nil:
	case q.Verb != "get":
		m.views = map[query.Key]Began{}
		for _, r := range wire.Acceptable(q.Accept) {
			key := q.Key(r)
			m.views[key] = s.Began(key)
		}
	case q.Consistent():
		m.readAt = s.readAt(of, q.Member())
	}
	return m
}

// Version returns the highest version that had been seen of the resource.
func (m *Moment) Version() string { return versionOf(m.highest) }

// Began returns the state of a view that the answer may update.
func (m *Moment) Began(key query.Key) Began { return m.views[key] }

// IsBeforeRestore reports whether the resource's store was restored since a moment: the answer may be from before.
func (s *Views) IsBeforeRestore(of query.UserResource, m *Moment) bool {
	return s.historyOf(of) != m.history
}

// historyOf returns another number after each restore of the resource's store.
func (s *Views) historyOf(of query.UserResource) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if h := s.histories[togetherWith(of)]; h != nil {
		return h.Load()
	}
	return 1
}

// Began is the state of a view when a request was sent. A consistent answer is not older, unless the store was restored
// from a backup. It is zero where that is not known, or there was no view.
type Began struct {
	received
	version string // of the view, if it has a state
	history int64  // View.history
}

// isBefore reports whether the view's store was restored since then.
func (b Began) isBefore(v *View) bool { return b.history != 0 && b.history != v.of.history.Load() }

// Began returns the state of the view, for a request that is about to be sent.
func (v *View) Began() Began {
	v.of.lock()
	defer v.of.unlock()
	b := Began{received: v.received, history: v.of.history.Load()}
	if v.complete {
		b.version = v.version
	}
	return b
}

// Began returns the state of a view, which need not exist.
func (s *Views) Began(key query.Key) Began {
	if v := s.Find(key); v != nil {
		return v.Began()
	}
	return Began{history: s.historyOf(key.UserResource())}
}

// Shown returns the latest version that clients had received for certain.
func (b Began) Shown() string { return versions.Higher(b.version, b.shown) }
