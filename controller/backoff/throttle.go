package backoff

import (
	"sync/atomic"
	"time"
)

// throttleFactor is how many times the duration of a rollout step must pass after its end
// before a change of a pod or node causes the next step. A step on thousands of nodes takes
// milliseconds, and thousands of pods change: with the throttle they share steps, and the
// controller is busy for at most a fifth of the time. On few nodes the wait is too short to
// notice.
const throttleFactor = 4

// maxThrottle bounds the wait, in case the machine was suspended during a step.
const maxThrottle = 250 * time.Millisecond

// Throttle limits how often a DaemonSet's rollout steps are taken. It is safe for
// concurrent use.
type Throttle struct {
	next atomic.Int64 // Unix time in nanoseconds
}

// Took records how long it took to plan a step, without waiting for the apiserver.
func (t *Throttle) Took(began, ended time.Time) {
	t.next.Store(ended.Add(min(throttleFactor*ended.Sub(began), maxThrottle)).UnixNano())
}

// Delay returns how long the next step has to wait; 0 or less is no wait.
func (t *Throttle) Delay(now time.Time) time.Duration { return time.Unix(0, t.next.Load()).Sub(now) }
