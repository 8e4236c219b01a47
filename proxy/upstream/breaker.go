package upstream

import (
	"sync"
	"time"
)

// breaker is a circuit breaker of one apiserver: see the package comment. It has no separate
// half-open state: as long as it is open, its prober finds out with requests of the hub's own
// whether it may close, and callers' requests are not sent.
type breaker struct {
	onChange func(change)  // called in the order of the changes; must not call back
	halfOpen chan struct{} // wakes the prober when the breaker opens; holds one

	mu    sync.Mutex
	since time.Time // of the last change
	cause error     // why it is open; nil: closed
}

// change is one of a breaker's state.
type change struct {
	cause  error  // why it opened; nil: it closed
	reason string // why it closed
	at     time.Time
	lasted time.Duration // of the state before
}

// newBreaker returns a closed breaker.
func newBreaker(onChange func(change)) *breaker {
	return &breaker{onChange: onChange, halfOpen: make(chan struct{}, 1), since: time.Now()}
}

// err returns why the breaker is open, or nil.
func (b *breaker) err() error {
	_, err := b.state()
	return err
}

// state returns the last change, and why the breaker is open, or nil.
func (b *breaker) state() (since time.Time, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.since, b.cause
}

// open opens the breaker, or records a newer cause. It does nothing if obsolete, which may be
// nil, returns true.
func (b *breaker) open(now time.Time, cause error, obsolete func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if obsolete != nil && obsolete() {
		return
	}
	wasOpen := b.cause != nil
	b.cause = cause
	if wasOpen {
		return
	}
	b.changeLocked(change{cause: cause, at: now})
	select {
	case b.halfOpen <- struct{}{}:
	default: // the prober is awake already
	}
}

// close closes the breaker, unless remains, which may be nil, returns true for its cause.
func (b *breaker) close(now time.Time, reason string, remains func(cause error) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil && (remains == nil || !remains(b.cause)) {
		b.cause = nil
		b.changeLocked(change{reason: reason, at: now})
	}
}

func (b *breaker) changeLocked(c change) {
	c.lasted = c.at.Sub(b.since).Round(time.Millisecond)
	b.since = c.at
	b.onChange(c)
}
