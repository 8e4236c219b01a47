package view

import (
	"slices"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// While a watch waits for the next event of an apiserver, its view is what the apiserver has, as far
// as anybody can know who watches. So the view can answer a read with resourceVersion=0, if nothing
// newer than the view's version has reached its user in any other way: by another view, by a GET, or
// as the answer to a write.

// MaxSilence is how long such a watch may be silent. An apiserver sends a bookmark in about a minute.
// If the connection is dead, its pings end the watch much sooner.
const MaxSilence = 2 * time.Minute

// feed is the state of the watches that keep a view current. The zero value is ready.
type feed struct {
	mu      sync.Mutex
	waiting int       // watches that wait for an apiserver now
	heard   time.Time // when one of them last got an event or bookmark
}

// Await is called with 1 before a watch waits for an apiserver, if the watch has relayed all events up
// to a bookmark, and with -1 after it.
func (v *View) Await(n int) {
	v.feed.mu.Lock()
	defer v.feed.mu.Unlock()
	v.feed.waiting += n
}

// Heard records an event or bookmark of a watch.
func (v *View) Heard(now time.Time) {
	v.feed.mu.Lock()
	defer v.feed.mu.Unlock()
	v.feed.heard = now
}

// isFed reports whether a watch keeps the view current.
func (v *View) isFed(now time.Time) bool {
	v.feed.mu.Lock()
	defer v.feed.mu.Unlock()
	silence := max(now.Sub(v.feed.heard), now.Round(0).Sub(v.feed.heard.Round(0)).Abs()) // the monotonic clock stands still while a machine is suspended
	return v.feed.waiting > 0 && silence < MaxSilence
}

// Current returns the copy of an object, in a representation, that a watch keeps current. It returns
// false if there is none, or if the user may have seen a later state of the object.
func (s *Views) Current(q *query.Query, r negotiation.Representation) (Copy, bool) {
	copies, err := s.Seek(q)
	if err != nil {
		return Copy{}, false
	}
	of, name := q.UserResource(), q.Member()
	all, known := s.Copies(of, name), s.Records.Known(of, q.Namespace, name)
	seen := versions.Higher(all.Seen(known), known.Damaged)
	at := slices.IndexFunc(copies, func(c Copy) bool {
		return c.View.Repr == r && versions.Compare(c.proven, seen) >= 0 && c.View.isFed(s.Now())
	})
	if at < 0 || s.isShared(of) {
		return Copy{}, false
	}
	c := copies[at]
	if slices.ContainsFunc(s.Of(of), func(v *View) bool { return v.differs(&c) }) {
		return Copy{}, false
	}
	return c, true
}

// differs reports whether a GET has shown other bytes than a copy has, at the same version: an apiserver may have
// got a new default.
func (v *View) differs(c *Copy) bool {
	if !v.Key.Single || v.Repr != c.View.Repr {
		return false
	}
	e, has := v.Member(c.Name)
	return has && e.Version == c.Entry.Version && e.sum != c.Entry.sum
}

// isShared reports whether the user knows the resource in another version of its API, too: versions of objects are
// the same in both, and what is known of one is not known of the other.
func (s *Views) isShared(of query.UserResource) bool {
	return s.hasShared(of) || s.Records.HasShared(of)
}

func (s *Views) hasShared(of query.UserResource) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for other := range s.of {
		if of.IsShared(other) {
			return true
		}
	}
	return false
}

// CurrentList returns the snapshot of a view that a watch keeps current, or nil if the user may have
// seen a later state of its resource.
func (s *Views) CurrentList(q *query.Query, r negotiation.Representation) *Snapshot {
	v := s.Find(q.Key(r))
	if v == nil || !v.isFed(s.Now()) || s.isShared(q.UserResource()) {
		return nil
	}
	snap, err := v.Snapshot()
	if err != nil || snap == nil {
		return nil
	}
	of := q.UserResource()
	later := slices.ContainsFunc(s.Of(of), func(other *View) bool { return versions.Compare(other.newestReceived(), snap.Version) > 0 })
	if later || !s.Records.AtMost(of, snap.Version, snap.has) {
		snap.Close()
		return nil
	}
	return snap
}

// newestReceived returns the highest version that clients may have received from the view.
func (v *View) newestReceived() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return versions.Higher(v.latestLocked(), v.seen)
}
