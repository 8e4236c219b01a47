package proxy

import (
	"container/list"
	"sync"
	"time"
)

// crowd bounds how many requests wait for their clients at the same time: what waits
// holds memory, and a client that never goes on costs the hub, and so the node, more
// of it than itself. Up to most of them wait as long as they like; where there are more,
// those that have waited longest are cut, once that is longer than patience. Who does
// not dawdle is never among them.
type crowd struct {
	most     int
	patience time.Duration

	mu      sync.Mutex
	waiting list.List // of *waiter, the longest first
}

type waiter struct {
	since time.Time
	cut   func() // must not call back
}

func newCrowd(most int, patience time.Duration) *crowd { return &crowd{most: most, patience: patience} }

// join notes that a request waits, until leave is called, which may be done again.
// cut ends it; it may come after leave.
func (c *crowd) join(cut func()) (leave func()) {
	now := time.Now()
	c.mu.Lock()
	place := c.waiting.PushBack(&waiter{now, cut})
	late := c.lateLocked(now)
	c.mu.Unlock()
	for _, w := range late {
		w.cut()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting.Remove(place)
	}
}

// lateLocked takes out those who are to be cut.
func (c *crowd) lateLocked(now time.Time) []*waiter {
	var late []*waiter
	for c.waiting.Len() > c.most {
		first := c.waiting.Front()
		w := first.Value.(*waiter)
		if now.Sub(w.since) < c.patience {
			break
		}
		c.waiting.Remove(first)
		late = append(late, w)
	}
	return late
}
