package backoff

import (
	"sync/atomic"
	"time"
)

// throttleFactor times the duration of a rollout step is the least time from its end to the
// next step that a change of a pod or node causes. A step on thousands of nodes takes
// milliseconds, and thousands of pods change: with the throttle they share steps, and the
// controller is busy for at most a fifth of the time. On few nodes the wait is too short to
// notice.
const throttleFactor = 4

// Throttle limits how often rollout steps are taken: it decides when the next step may be taken. It is safe for concurrent use.
type Throttle struct {
	next atomic.Int64 // Unix time in nanoseconds
}

// maxThrottle bounds the wait, in case the machine was suspended during a step.
const maxThrottle = 250 * time.Millisecond

// Took records how long it took to plan a step, without waiting for the apiserver.
func (t *Throttle) Took(began, ended time.Time) {
	t.next.Store(ended.Add(min(throttleFactor*ended.Sub(began), maxThrottle)).UnixNano())
}

// Delay returns how long the next step has to wait; 0 or less is no wait.
func (t *Throttle) Delay(now time.Time) time.Duration { return time.Unix(0, t.next.Load()).Sub(now) }
