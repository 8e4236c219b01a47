package controller

import (
	"sync/atomic"
	"time"
)

// rests is how many times longer than it took a step of a rollout is not taken
// again for what happens to pods and nodes. A step on thousands of nodes takes
// milliseconds, and thousands of pods change; so they share steps, and the
// controller is busy for a fifth of the time at most. On few nodes nobody notices.
const rests = 4

// pace says when the next step may be taken. It is safe for concurrent use.
type pace struct {
	next atomic.Int64 // Unix time in nanoseconds
}

// maxRest bounds the rest, for a machine that stood still meanwhile.
const maxRest = 250 * time.Millisecond

// took says when a step was thought out. Waiting for answers does not count.
func (p *pace) took(began, ended time.Time) {
	p.next.Store(ended.Add(min(rests*ended.Sub(began), maxRest)).UnixNano())
}

// wait is how long the next step has to wait; 0 or less is not at all.
func (p *pace) wait(now time.Time) time.Duration { return time.Unix(0, p.next.Load()).Sub(now) }
