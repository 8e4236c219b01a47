package backoff

import (
	"sync/atomic"
	"time"
)

// throttleFactor is how many times longer than it took a step of a rollout is not taken
// again for what happens to pods and nodes. A step on thousands of nodes takes
// milliseconds, and thousands of pods change; so they share steps, and the
// controller is busy for a fifth of the time at most. On few nodes nobody notices.
const throttleFactor = 4

// throttle says when the next step may be taken. It is safe for concurrent use.
type Throttle struct {
	next atomic.Int64 // Unix time in nanoseconds
}

// maxThrottle bounds the wait, for a machine that stood still meanwhile.
const maxThrottle = 250 * time.Millisecond

// Took says when a step was thought out. Waiting for answers does not count.
func (t *Throttle) Took(began, ended time.Time) {
	t.next.Store(ended.Add(min(throttleFactor*ended.Sub(began), maxThrottle)).UnixNano())
}

// Delay is how long the next step has to wait; 0 or less is not at all.
func (t *Throttle) Delay(now time.Time) time.Duration { return time.Unix(0, t.next.Load()).Sub(now) }
