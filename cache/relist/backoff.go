package relist

import (
	"math"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	// MaxPause is the longest pause between relists of one view for its open watches, if they
	// recur (because the disk is full, for example). The first pause is two seconds.
	MaxPause = 5 * time.Minute
	// Calm is the time without such a relist that resets the pause.
	Calm = 10 * time.Minute

	// FirstBackoff is how long a view that was evicted, or that cannot be cached for a permanent
	// reason, is not listed for open watches. It doubles each time.
	FirstBackoff = 10 * time.Minute
	// MaxBackoff is the longest such backoff.
	MaxBackoff = 6 * time.Hour

	// verifyEvery is the shortest interval between checks whether a view is newer than the
	// apiservers.
	verifyEvery = time.Minute
)

// doubling returns a backoff from first to most.
func doubling(first, most time.Duration) wait.Backoff {
	return wait.Backoff{Duration: first, Factor: 2, Steps: math.MaxInt, Cap: most}
}

// States are the relist states of views. They are safe for concurrent use. mu is taken before the
// locks of views and of relisting, and after that of evictions.
type States struct {
	now func() time.Time

	mu sync.Mutex
	of map[*view.View]*relisting
}

// NewStates returns empty States.
func NewStates(now func() time.Time) *States {
	return &States{now: now, of: map[*view.View]*relisting{}}
}

// relisting returns the relist state of a view.
func (s *States) relisting(v *view.View) *relisting {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.of[v]
	if r == nil {
		r = newRelisting()
		s.of[v] = r
	}
	return r
}

// BackOff prevents relists of a view for its open watches for some time.
func (s *States) BackOff(v *view.View) { s.relisting(v).backOff(s.now()) }

// Forget drops the state of a view that was removed.
func (s *States) Forget(v *view.View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, v)
}

// sweep drops the results of old relists, and the state of views that were removed.
func (s *States) sweep(views *view.Views) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for v, r := range s.of {
		r.sweep(s.now())
		if views.Find(v.Key) != v {
			delete(s.of, v)
		}
	}
}

// relisting is the relist state of one view: the last relist, and when the next is allowed.
type relisting struct {
	mu       sync.Mutex
	last     *Call
	pauses   wait.Backoff  // between relists for open watches
	pause    time.Duration // the current one; 0 after a calm time
	backoffs wait.Backoff  // after permanent failures
	// notBefore ends the current backoff.
	notBefore time.Time
	// verified is when the view was last compared with the apiservers.
	verified time.Time
}

func newRelisting() *relisting {
	r := &relisting{backoffs: doubling(FirstBackoff, MaxBackoff)}
	r.resetPauseLocked()
	return r
}

func (r *relisting) resetPauseLocked() { r.pause, r.pauses = 0, doubling(2*time.Second, MaxPause) }

// backOff prevents relists for open watches for some time.
func (r *relisting) backOff(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notBefore = now.Add(r.backoffs.Step())
}

// sweep drops the result of an old relist.
func (r *relisting) sweep(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last != nil && r.last.isDone() && now.Sub(r.last.ended).Abs() > Calm {
		r.last = nil
		r.resetPauseLocked()
	}
}

// allowedLocked reports whether open watches may have the view listed now, and counts it.
func (r *relisting) allowedLocked(now time.Time) bool {
	if now.Before(r.notBefore) {
		return false
	}
	if r.last != nil {
		switch since := now.Sub(r.last.ended).Abs(); {
		case since > Calm:
			r.resetPauseLocked()
		case since < r.pause:
			return false
		}
	}
	r.pause = r.pauses.Step()
	return true
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
