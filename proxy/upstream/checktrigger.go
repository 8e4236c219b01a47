package upstream

import (
	"slices"
	"sync"
	"time"
)

const (
	// failureWindow is the time within which Limits.BadAnswers failures trigger a check.
	// Successes do not reset the count: most of them do not need the apiserver's storage, and
	// a single caller could use them to hide a loss from all others.
	failureWindow = time.Minute

	// maxPause is the longest pause between two checks. It bounds how much later such a loss
	// is noticed while a caller provokes failures.
	maxPause = 30 * time.Second
)

// checkTrigger decides when the hub checks whether an apiserver still serves the node
// (checkStorage). Callers can provoke failures, so a failure never does more than trigger a
// check, and checks are limited: one at a time, with a pause after each that doubles, up to
// maxPause, while failures continue.
type checkTrigger struct {
	threshold int           // failures within failureWindow that trigger a check
	minPause  time.Duration // the first pause
	wake      chan struct{} // to the prober, when a check is due; holds one

	mu        sync.Mutex
	recent    []time.Time // times of the last failures, at most threshold
	pending   bool        // a check is due, or running
	lastCheck time.Time   // end of the last check
	pause     time.Duration
}

func newCheckTrigger(limits Limits) *checkTrigger {
	return &checkTrigger{threshold: limits.BadAnswers, minPause: limits.Probe, wake: make(chan struct{}, 1)}
}

// countFailure counts a failure, and triggers a check if there are enough.
func (d *checkTrigger) countFailure(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recent = append(d.recent, now); len(d.recent) > d.threshold {
		d.recent = slices.Delete(d.recent, 0, 1)
	}
	if len(d.recent) == d.threshold && now.Sub(d.recent[0]) < failureWindow {
		d.triggerLocked(now)
	}
}

// trigger triggers a check for a failure that is sufficient on its own.
func (d *checkTrigger) trigger(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.triggerLocked(now)
}

// triggerLocked triggers a check, unless one is running, or within the pause after one: the
// next failure triggers again.
func (d *checkTrigger) triggerLocked(now time.Time) {
	if d.pending || !d.lastCheck.IsZero() && now.Sub(d.lastCheck) < d.pause {
		return
	}
	d.pending = true
	d.wake <- struct{}{} // the receiver calls checked
}

// checked records the end of a check, whatever its result.
func (d *checkTrigger) checked(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.lastCheck) > d.pause+2*maxPause { // there were no failures for long
		d.pause = 0
	}
	d.pause = min(max(2*d.pause, d.minPause), maxPause)
	d.lastCheck, d.pending, d.recent = now, false, d.recent[:0]
}
