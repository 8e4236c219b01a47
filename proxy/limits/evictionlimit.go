package limits

import (
	"container/list"
	"sync"
	"time"
)

// Eviction bounds how many requests wait for their clients at the same time: what waits
// holds memory, and a client that never goes on costs the hub, and so the node, more
// of it than itself. Up to most of them wait as long as they like; where there are more,
// those that have waited longest are cut, once that is longer than patience. Who does
// not dawdle is never among them.
type Eviction struct {
	limit int
	grace time.Duration

	mu        sync.Mutex
	waiting   list.List // of *waiter, the longest first
	scheduled bool      // cutLate will be called
}

type waiter struct {
	since time.Time
	evict func() // must not call back
}

// NewEviction returns an Eviction that lets most requests wait for as long as they like,
// and evicts none that has waited for less than patience.
func NewEviction(most int, patience time.Duration) *Eviction {
	return &Eviction{limit: most, grace: patience}
}

// Add notes that a request waits, until leave is called, which may be done again.
// cut ends it; it may come after leave.
func (c *Eviction) Add(cut func()) (leave func()) {
	c.mu.Lock()
	place := c.waiting.PushBack(&waiter{time.Now(), cut})
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

// evictOldest cuts those who are too many, and too long there, and comes again where others
// will be.
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
