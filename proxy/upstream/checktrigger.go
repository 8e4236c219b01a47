package upstream

import (
	"sync"
	"time"
)

const (
	// failureWindow is the time within which Limits.BadAnswers reasons for doubt count
	// together. Good answers in between do not end the count: most of them do not need
	// the apiserver's storage, and any caller can ask for them, so that one caller could
	// hide a loss from all others.
	failureWindow = time.Minute

	// maxPause is the longest pause between two questions that were asked in doubt. So
	// much later a loss of this kind may be noticed while a caller provokes doubts.
	maxPause = 30 * time.Second
)

// checkTrigger decide when the hub asks an apiserver whether it still serves the node
// (askStorage). Callers can provoke doubts, so that a doubt never does more than
// that, and the questions are limited: one at a time, and with a pause after each
// that doubles, up to maxPause, for as long as there are doubts.
type checkTrigger struct {
	threshold int           // doubts within doubtWindow make a question
	minPause  time.Duration // the first pause
	wake      chan struct{} // to the prober, when a question is due; holds one

	mu        sync.Mutex
	recent    []time.Time // of the last doubts, at most enough of them
	pending   bool        // a question is due, or under way
	lastCheck time.Time   // when the last question was answered
	pause     time.Duration
}

func newCheckTrigger(limits Limits) *checkTrigger {
	return &checkTrigger{threshold: limits.BadAnswers, minPause: limits.Probe, wake: make(chan struct{}, 1)}
}

// countFailure takes up one reason for doubt, of several that it takes.
func (d *checkTrigger) countFailure(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.recent) == d.threshold {
		d.recent = append(d.recent[:0], d.recent[1:]...)
	}
	d.recent = append(d.recent, now)
	if len(d.recent) == d.threshold && now.Sub(d.recent[0]) < failureWindow {
		d.triggerLocked(now)
	}
}

// trigger takes up a reason for doubt that is enough by itself.
func (d *checkTrigger) trigger(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.triggerLocked(now)
}

// triggerLocked has the prober ask, unless it does, or did just now: the next doubt after
// the pause asks again.
func (d *checkTrigger) triggerLocked(now time.Time) {
	if d.pending || !d.lastCheck.IsZero() && now.Sub(d.lastCheck) < d.pause {
		return
	}
	d.pending = true
	d.wake <- struct{}{} // asking is set back by who has received it
}

// checked notes that the question was answered, whatever the answer.
func (d *checkTrigger) checked(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.lastCheck) > d.pause+2*maxPause { // there was no doubt for long
		d.pause = 0
	}
	d.pause = min(max(2*d.pause, d.minPause), maxPause)
	d.lastCheck, d.pending, d.recent = now, false, d.recent[:0]
}
