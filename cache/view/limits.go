package view

import (
	"math"
	"sync"

	"github.com/edgehub-io/edgehub/cache/quota"
)

// maxViews bounds the number of views. A kubelet with 250 pods has about 1,000, which leaves
// three other users about 1,000 each before views are evicted.
const maxViews = 4096

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

// holder is what counts against the limits: a view, or the copies of a resource.
type holder interface {
	// measure returns what it counts.
	measure() usage
	// part is its part of totals, whose mutex guards it.
	part() *usage
	resource() *resource
	readers() (now int, last int64)
	evict()
}

func (u *use) part() *usage                   { return &u.counted }
func (u *use) readers() (now int, last int64) { return u.Holders(), u.used.Load() }
func (v *View) resource() *resource           { return v.of }
func (r *resource) resource() *resource       { return r }

func (v *View) measure() usage {
	v.of.lock()
	defer v.of.unlock()
	if !v.onDisk {
		return usage{}
	}
	return usage{1, v.bytes + viewCost + int64(len(v.table))}
}

func (r *resource) measure() usage {
	r.lock()
	defer r.unlock()
	if r.copied == 0 {
		return usage{}
	}
	return usage{1, r.bytes + viewCost}
}

// evict drops the view.
func (v *View) evict() {
	s := v.of.all
	s.Log.Debug("evicted from the cache to make room", "view", v.String())
	s.AskLater(v) // there is no room: the clients of its watches do not list it soon
	s.retire(v)
	s.count(v)
	s.remove(v)
}

// evict drops all copies.
func (r *resource) evict() {
	r.lock()
	for name := range r.entries {
		r.dropCopiesLocked(name)
	}
	r.unlock()
	r.all.count(r)
}

// set updates the usage of one holder.
func (t *totals) set(h holder, u usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := h.part()
	t.total.count += u.count - before.count
	t.total.bytes += u.bytes - before.bytes
	if !h.resource().isKubelets() {
		t.evictable += u.count - before.count
	}
	*before = u
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

// count updates the usage of a holder.
func (s *Views) count(h holder) usage {
	u := h.measure()
	s.totals.set(h, u)
	if v, ok := h.(*View); ok && s.Find(v.Key) != v { // it was removed meanwhile
		s.totals.set(h, usage{})
	}
	return u
}

// holders returns all views and resources, in no order.
func (s *Views) holders() []holder {
	var all []holder
	for _, v := range s.All() {
		all = append(all, v)
	}
	for _, r := range s.allResources() {
		all = append(all, r)
	}
	return all
}

func (s *Views) bounds() quota.Bounds { return quota.Bounds{Count: maxViews, Bytes: s.Max} }

// exceeded reports whether all views together exceed the limits.
func (s *Views) exceeded() bool {
	return s.bounds().Exceeded(s.Used())
}

// EnforceLimit evicts views and copies, in the order of package quota, until the rest is within the
// limits. newest is the view that was just read, or nil; EnforceLimit returns false if it was
// evicted, too.
func (s *Views) EnforceLimit(newest holder) bool {
	if newest == nil {
		for _, h := range s.holders() {
			s.count(h)
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
func (s *Views) makeRoom(newest holder) (kept bool) {
	s.totals.evicting.Lock()
	defer s.totals.evicting.Unlock()
	kept = true
	freed := usage{}
	for _, item := range s.excess(newest) {
		if (item.InUse || item.Key == newest) && !s.exceeded() {
			break // the slack is taken only from views that are not in use
		}
		s.Evicted()
		item.Key.evict()
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
func (s *Views) excess(newest holder) []quota.Item[holder] {
	_, evictable := s.totals.get()
	if evictable == 0 {
		return nil
	}
	if newest != nil && evictable == 1 {
		if item, ok := s.item(newest, newest); ok && !item.Fixed {
			return []quota.Item[holder]{item}
		}
	}
	var items []quota.Item[holder]
	for _, h := range s.holders() {
		if item, ok := s.item(h, newest); ok {
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

// item returns a holder as an item of the quota, and whether it holds something. The newest one is in
// use only if another request than the one that has just read it holds it.
func (s *Views) item(h, newest holder) (item quota.Item[holder], kept bool) {
	u, r := s.count(h), h.resource()
	now, last := h.readers()
	item = quota.Item[holder]{Key: h, User: r.resourceKey.user, Bytes: u.bytes, Last: last, InUse: now > 0, Fixed: r.isKubelets()}
	if h == newest {
		item.Last, item.InUse = math.MaxInt64, now > 1
	}
	return item, u.count > 0
}

// Evict drops a view.
func (s *Views) Evict(v *View) {
	s.Evicted()
	v.evict()
}
