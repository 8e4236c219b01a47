package relist

import (
	"sync"
	"time"
)

// relisting is the relist state of one view: the last relist, and when the next is allowed.
type relisting struct {
	mu        sync.Mutex
	last      *Call
	tries     int // relists for open watches, in a row
	backoffs  int // in a row
	notBefore time.Time
	// verified is when the view was last compared with the apiservers.
	verified time.Time
}

// backOff prevents relists for open watches for some time.
func (r *relisting) backOff(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notBefore = now.Add(min(FirstBackoff<<min(r.backoffs, 16), MaxBackoff))
	r.backoffs++
}

// sweep drops the result of an old relist.
func (r *relisting) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return
	}
	select {
	case <-r.last.Done:
		if now.Sub(r.last.ended).Abs() > Calm {
			r.last, r.tries = nil, 0
		}
	default:
	}
}

// allowedLocked reports whether open watches may have the view listed now, and counts it.
func (r *relisting) allowedLocked(now time.Time) bool {
	if now.Before(r.notBefore) {
		return false
	}
	if r.last != nil {
		pause := min(time.Second<<min(r.tries, 20), MaxPause)
		switch since := now.Sub(r.last.ended).Abs(); {
		case since > Calm:
			r.tries = 0
		case r.tries > 0 && since < pause:
			return false
		}
	}
	r.tries++
	return true
}

// ended returns a relist that succeeded after a time, or nil.
func (r *relisting) ended(after time.Time) *Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		return nil
	}
	select {
	case <-r.last.Done:
		if r.last.Err == nil && r.last.ended.After(after) {
			return r.last
		}
	default:
	}
	return nil
}

// verify reports whether the view may be compared with the apiservers again.
func (r *relisting) verify(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.verified).Abs() < verifyEvery {
		return false
	}
	r.verified = now
	return true
}

// A view that was evicted, or that cannot be cached for a permanent reason, is not listed for
// open watches for FirstBackoff, which doubles each time up to MaxBackoff.
const (
	FirstBackoff = 10 * time.Minute
	MaxBackoff   = 6 * time.Hour
)
