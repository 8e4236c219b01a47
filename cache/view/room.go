package view

import (
	"math"
	"sync"

	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/records"
)

// maxViews bounds the number of views. A kubelet with 250 pods has some 1,000, so next to
// it three other users can hold some 1,000 each before one of them loses any.
const maxViews = 4096

// The versions of whatever there are views of are counted.
const _ = uint(records.MaxCounted - 2*maxViews)

// roomShare is how much is evicted at once beyond what has to go, as a part of the
// bounds: a flood of lists costs a look at all views once in 64 lists, not for each.
const roomShare = 64

// usage is what a view, or all views, count against the bounds.
type usage struct {
	count int
	bytes int64
}

// room is how much all views take together. It is brought up to date for one view when
// that is committed, and for all of them at each sweep and before anything is evicted,
// so that a commit does not have to look at all views.
type room struct {
	mu        sync.Mutex
	total     usage
	evictable int // how many of the views are not the kubelet's
	// evicting is held while views are evicted. It is taken before any other lock.
	evicting sync.Mutex
}

// set changes what one view counts.
func (r *room) set(v *View, u usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total.count += u.count - v.counted.count
	r.total.bytes += u.bytes - v.counted.bytes
	if !v.isKubeletView() {
		r.evictable += u.count - v.counted.count
	}
	v.counted = u
}

func (r *room) mayEvict() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.evictable
}

func (r *room) used() usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}

// Used is how many views there are, and how many bytes they take.
func (s *Views) Used() (count int, bytes int64) {
	u := s.room.used()
	return u.count, u.bytes
}

// settle counts a view as what it is now.
func (s *Views) settle(v *View) usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	u := usage{}
	if v.onDisk {
		u = usage{1, v.bytes + Cost + int64(len(v.raw))}
	}
	s.room.set(v, u)
	return u
}

func (s *Views) bounds() quota.Bounds { return quota.Bounds{Count: maxViews, Bytes: s.Max} }

// exceeded reports whether all views together are too much.
func (s *Views) exceeded() bool {
	u := s.room.used()
	return s.bounds().Exceeded(u.count, u.bytes)
}

// EnforceLimit evicts views until the rest is within the bounds, in the order of package quota;
// nil stands for no view in particular. It returns false if newest, which was just read,
// had to go.
func (s *Views) EnforceLimit(newest *View) bool {
	if newest == nil {
		for _, v := range s.All() {
			s.settle(v)
		}
	} else {
		s.settle(newest)
	}
	if s.exceeded() {
		return s.makeRoom(newest)
	}
	s.full.Store(false)
	return true
}

// makeRoom evicts views, and returns false if newest is one of them.
func (s *Views) makeRoom(newest *View) (kept bool) {
	s.room.evicting.Lock()
	defer s.room.evicting.Unlock()
	kept = true
	freed := usage{}
	for _, item := range s.excess(newest) {
		if (item.InUse || item.Key == newest) && !s.exceeded() {
			break // what is beyond need is taken from what nobody uses
		}
		s.Evict(item.Key)
		kept = kept && item.Key != newest
		freed.count, freed.bytes = freed.count+1, freed.bytes+item.Bytes
	}
	if freed.count > 0 {
		s.Log.Info("evicted from the cache to make room", "views", freed.count, "bytes", freed.bytes)
	}
	u := s.room.used()
	if over := u.bytes > s.Max; s.full.Swap(over) != over && over {
		s.Log.Error("what the kubelet reads takes more than --cache-max-bytes; it is kept all the same", "bytes", u.bytes, "max", s.Max)
	}
	return kept
}

// excess returns the views that go, in this order, and some more. It looks at all views,
// unless there is nothing to choose from: where the kubelet's views alone exceed the
// bounds, every answer that is kept comes here, and all else has gone.
func (s *Views) excess(newest *View) []quota.Item[*View] {
	evictable := s.room.mayEvict()
	if evictable == 0 {
		return nil
	}
	if newest != nil && evictable == 1 {
		if item, ok := s.item(newest, newest); ok && !item.Fixed {
			return []quota.Item[*View]{item}
		}
	}
	items := s.items(newest)
	if !s.exceeded() { // others were faster, or views have shrunk
		return nil
	}
	enough := s.bounds()
	enough.Count -= enough.Count / roomShare
	enough.Bytes -= enough.Bytes / roomShare
	return quota.Excess(enough, items)
}

// items returns all views that are kept, as the quota sees them.
func (s *Views) items(newest *View) []quota.Item[*View] {
	var items []quota.Item[*View]
	for _, v := range s.All() {
		if item, ok := s.item(v, newest); ok {
			items = append(items, item)
		}
	}
	return items
}

// item returns a view as the quota sees it, if it is kept. The newest one counts as used
// by its reader only where that is not the request that has just fed it.
func (s *Views) item(v, newest *View) (item quota.Item[*View], kept bool) {
	u := s.settle(v)
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
	s.Evicted(v)
	s.retire(v)
	s.settle(v)
	s.remove(v)
}
