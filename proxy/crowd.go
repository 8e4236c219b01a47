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
	due     bool      // cutLate will be called
}

type waiter struct {
	since time.Time
	cut   func() // must not call back
}

func newCrowd(most int, patience time.Duration) *crowd { return &crowd{most: most, patience: patience} }

// join notes that a request waits, until leave is called, which may be done again.
// cut ends it; it may come after leave.
func (c *crowd) join(cut func()) (leave func()) {
	c.mu.Lock()
	place := c.waiting.PushBack(&waiter{time.Now(), cut})
	isFull := c.waiting.Len() > c.most && !c.due
	c.mu.Unlock()
	if isFull {
		c.cutLate()
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.waiting.Remove(place)
	}
}

// cutLate cuts those who are too many, and too long there, and comes again where others
// will be.
func (c *crowd) cutLate() {
	c.mu.Lock()
	var late []*waiter
	c.due = false
	for c.waiting.Len() > c.most && !c.due {
		first := c.waiting.Front()
		w := first.Value.(*waiter)
		if soon := c.patience - time.Since(w.since); soon > 0 {
			c.due = true
			time.AfterFunc(soon, c.cutLate)
			break
		}
		c.waiting.Remove(first)
		late = append(late, w)
	}
	c.mu.Unlock()
	for _, w := range late {
		w.cut()
	}
}
