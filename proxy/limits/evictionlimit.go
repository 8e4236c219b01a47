package limits

import (
	"container/list"
	"sync"
	"time"
)

// Eviction bounds how many requests wait for their clients at the same time: each uses memory
// of the hub. Up to the limit they may wait for any time; beyond it those that have waited
// longest are evicted, after a grace period, so that normal clients are not affected.
type Eviction struct {
	limit int
	grace time.Duration

	mu        sync.Mutex
	waiting   list.List // of *waiter, the longest first
	scheduled bool      // evictOldest will be called
}

type waiter struct {
	since time.Time
	evict func() // must not call back
}

// NewEviction returns an Eviction that evicts requests beyond limit, after they have waited for
// grace.
func NewEviction(limit int, grace time.Duration) *Eviction {
	return &Eviction{limit: limit, grace: grace}
}

// Add adds a request that waits, until leave is called; leave is idempotent. evict ends the
// request; it may be called after leave.
func (c *Eviction) Add(evict func()) (leave func()) {
	c.mu.Lock()
	place := c.waiting.PushBack(&waiter{time.Now(), evict})
	isFull := c.waiting.Len() > c.limit && !c.scheduled
	c.mu.Unlock()
	if isFull {
		c.evictOldest()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting.Remove(place)
	}
}

// Len returns how many requests wait.
func (c *Eviction) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting.Len()
}

// evictOldest evicts the requests beyond the limit that have waited for the grace period, and
// schedules itself for those that have not.
func (c *Eviction) evictOldest() {
	c.mu.Lock()
	var late []*waiter
	c.scheduled = false
	for c.waiting.Len() > c.limit && !c.scheduled {
		first := c.waiting.Front()
		w := first.Value.(*waiter)
		if soon := c.grace - time.Since(w.since); soon > 0 {
			c.scheduled = true
			time.AfterFunc(soon, c.evictOldest)
			break
		}
		c.waiting.Remove(first)
		late = append(late, w)
	}
	c.mu.Unlock()
	for _, w := range late {
		w.evict()
	}
}
