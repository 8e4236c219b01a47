package proxy

import (
	"sync"
	"time"
)

const (
	// doubtWindow is the time within which Limits.BadAnswers reasons for doubt count
	// together. Good answers in between do not end the count: most of them do not need
	// the apiserver's storage, and any caller can ask for them, so that one caller could
	// hide a loss from all others.
	doubtWindow = time.Minute

	// maxPause is the longest pause between two questions that were asked in doubt. So
	// much later a loss of this kind may be noticed while a caller provokes doubts.
	maxPause = 30 * time.Second
)

// doubts decide when the hub asks an apiserver whether it still serves the node
// (askStorage). Callers can provoke doubts, so that a doubt never does more than
// that, and the questions are limited: one at a time, and with a pause after each
// that doubles, up to maxPause, for as long as there are doubts.
type doubts struct {
	enough int           // doubts within doubtWindow make a question
	pause0 time.Duration // the first pause
	wake   chan struct{} // to the prober, when a question is due; holds one

	mu      sync.Mutex
	recent  []time.Time // of the last doubts, at most enough of them
	asking  bool        // a question is due, or under way
	settled time.Time   // when the last question was answered
	pause   time.Duration
}

func newDoubts(limits Limits) *doubts {
	return &doubts{enough: limits.BadAnswers, pause0: limits.Probe, wake: make(chan struct{}, 1)}
}

// note takes up one reason for doubt, of several that it takes.
func (d *doubts) note(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.recent) == d.enough {
		d.recent = append(d.recent[:0], d.recent[1:]...)
	}
	d.recent = append(d.recent, now)
	if len(d.recent) == d.enough && now.Sub(d.recent[0]) < doubtWindow {
		d.askLocked(now)
	}
}

// raise takes up a reason for doubt that is enough by itself.
func (d *doubts) raise(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.askLocked(now)
}

// askLocked has the prober ask, unless it does, or did just now: the next doubt after
// the pause asks again.
func (d *doubts) askLocked(now time.Time) {
	if d.asking || !d.settled.IsZero() && now.Sub(d.settled) < d.pause {
		return
	}
	d.asking = true
	d.wake <- struct{}{} // asking is set back by who has received it
}

// settle notes that the question was answered, whatever the answer.
func (d *doubts) settle(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Sub(d.settled) > d.pause+2*maxPause { // there was no doubt for long
		d.pause = 0
	}
	d.pause = min(max(2*d.pause, d.pause0), maxPause)
	d.settled, d.asking, d.recent = now, false, d.recent[:0]
}
