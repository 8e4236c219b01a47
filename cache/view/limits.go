package view

import (
	"math"
	"sync"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/records"
)

// maxViews bounds the number of views. A kubelet with 250 pods has about 1,000, which leaves
// three other users about 1,000 each before views are evicted.
const maxViews = 4096

// Records can count the versions of the resources of all views.
const _ = uint(records.MaxCounted - 2*maxViews)

// evictionSlack is how much more than necessary is evicted at once, as a fraction (1/64) of
// the limits: in a flood of lists, one in 64 has to examine all views, not each.
const evictionSlack = 64

// usage is what one view, or all views, count against the limits.
type usage struct {
	count int
	bytes int64
}

// totals is the usage of all views. It is updated for one view when that is committed, and
// for all views at each sweep and before an eviction, so that a commit does not have to
// examine all views.
type totals struct {
	mu        sync.Mutex
	total     usage
	evictable int // number of views that are not the kubelet's
	// evicting is held during evictions. It is taken before any other lock.
	evicting sync.Mutex
}

// set updates the usage of one view.
func (t *totals) set(v *View, u usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.count += u.count - v.counted.count
	t.total.bytes += u.bytes - v.counted.bytes
	if !v.isKubeletView() {
		t.evictable += u.count - v.counted.count
	}
	v.counted = u
}

func (t *totals) get() (total usage, evictable int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total, t.evictable
}

// Used returns the number of views and their size.
func (s *Views) Used() (count int, bytes int64) {
	u, _ := s.totals.get()
	return u.count, u.bytes
}

// count updates the usage of a view.
func (s *Views) count(v *View) usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	u := usage{}
	if v.onDisk {
		u = usage{1, v.bytes + Cost + int64(len(v.raw))}
	}
	s.totals.set(v, u)
	return u
}

func (s *Views) bounds() quota.Bounds { return quota.Bounds{Count: maxViews, Bytes: s.Max} }

// exceeded reports whether all views together exceed the limits.
func (s *Views) exceeded() bool {
	return s.bounds().Exceeded(s.Used())
}

// EnforceLimit evicts views, in the order of package quota, until the rest is within the
// limits. newest is the view that was just read, or nil; EnforceLimit returns false if it was
// evicted, too.
func (s *Views) EnforceLimit(newest *View) bool {
	if newest == nil {
		for _, v := range s.All() {
			s.count(v)
		}
	} else {
		s.count(newest)
	}
	if s.exceeded() {
		return s.makeRoom(newest)
	}
	s.full.Store(false)
	return true
}

// makeRoom evicts views, and returns false if newest is one of them.
func (s *Views) makeRoom(newest *View) (kept bool) {
	s.totals.evicting.Lock()
	defer s.totals.evicting.Unlock()
	kept = true
	freed := usage{}
	for _, item := range s.excess(newest) {
		if (item.InUse || item.Key == newest) && !s.exceeded() {
			break // the slack is taken only from views that are not in use
		}
		s.Evict(item.Key)
		kept = kept && item.Key != newest
		freed.count, freed.bytes = freed.count+1, freed.bytes+item.Bytes
	}
	if freed.count > 0 {
		s.Log.Info("evicted from the cache to make room", "views", freed.count, "bytes", freed.bytes)
	}
	_, bytes := s.Used()
	if over := bytes > s.Max; s.full.Swap(over) != over && over {
		s.Log.Error("what the kubelet reads takes more than --cache-max-bytes; it is kept all the same", "bytes", bytes, "max", s.Max)
	}
	return kept
}

// excess returns the views to evict, in this order, and some more. It does not examine all
// views if there is no choice: while the kubelet's views alone exceed the limits, all others
// have been evicted, and every new list calls this.
func (s *Views) excess(newest *View) []quota.Item[*View] {
	_, evictable := s.totals.get()
	if evictable == 0 {
		return nil
	}
	if newest != nil && evictable == 1 {
		if item, ok := s.item(newest, newest); ok && !item.Fixed {
			return []quota.Item[*View]{item}
		}
	}
	var items []quota.Item[*View]
	for _, v := range s.All() {
		if item, ok := s.item(v, newest); ok {
			items = append(items, item)
		}
	}
	if !s.exceeded() { // another request has evicted views, or views have shrunk
		return nil
	}
	enough := s.bounds()
	enough.Count -= enough.Count / evictionSlack
	enough.Bytes -= enough.Bytes / evictionSlack
	return quota.Excess(enough, items)
}

// item returns a view as an item of the quota, and whether it is stored. The newest one is in
// use only if another request than the one that has just read it holds it.
func (s *Views) item(v, newest *View) (item quota.Item[*View], kept bool) {
	u := s.count(v)
	item = quota.Item[*View]{
		Key: v, User: v.Key.User, Bytes: u.bytes, Last: v.used.Load(), InUse: v.Holders() > 0, Fixed: v.isKubeletView(),
	}
	if v == newest {
		item.Last, item.InUse = math.MaxInt64, v.Holders() > 1
	}
	return item, u.count > 0
}

// Evict drops a view.
func (s *Views) Evict(v *View) {
	s.Log.Debug("evicted from the cache to make room", "view", v.String())
	s.Evicted()
	s.AskLater(v) // there is no room: the clients of its watches do not list it soon
	s.retire(v)
	s.count(v)
	s.remove(v)
}
