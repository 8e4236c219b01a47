package upstream

import (
	"context"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

// State is what an Upstream knows of the cloud.
type State struct {
	// Up is true while at least one apiserver can be reached.
	Up bool
	// Since is the last change of Up, or else the start of the process. While Up is false it
	// may be before that: see Upstream.Recall.
	Since time.Time
	// Refused is true while apiservers can be reached, but none of them accepts the node's
	// credentials, or the node has none.
	Refused bool
	// RefusedSince is when the last of them refused.
	RefusedSince time.Time
	// Servers are all apiservers, in the order of New.
	Servers []ServerState
}

// ServerState is what an Upstream knows of one apiserver.
type ServerState struct {
	Address string // HOST:PORT
	Up      bool
	Since   time.Time // as in State
	Err     error     // of the last attempt to reach it; nil while it is up
	Refused error     // why nothing is sent as the node; nil: its credentials are accepted
}

// State returns the current state.
func (u *Upstream) State() State {
	now := time.Now()
	all, node := u.availability[authn.Caller].now(), u.availability[authn.Node].now()
	out := State{Up: all.up > 0, Since: all.since, Refused: all.up > 0 && node.up == 0, RefusedSince: node.since}
	if !out.Up {
		out.Since = u.outageStart.of(out.Since, now)
	}
	for _, s := range u.servers {
		since, err := s.health.state()
		if err != nil {
			since = u.outageStart.of(since, now)
		}
		out.Servers = append(out.Servers, ServerState{Address: s.address.Host, Up: err == nil, Since: since, Err: err, Refused: s.auth.err()})
	}
	return out
}

// WaitUp returns nil as soon as the user of a request with ctx can reach an apiserver, or
// else ctx's error. For the node, an apiserver must also accept its credentials.
func (u *Upstream) WaitUp(ctx context.Context) error {
	select {
	case <-u.availability[authn.IdentityOf(ctx)].now().upCh:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Lost returns a channel that is closed once the user of a request with ctx can reach no
// apiserver, in the sense of WaitUp. It stays closed after a return: call Lost again for the
// next loss.
func (u *Upstream) Lost(ctx context.Context) <-chan struct{} {
	return u.availability[authn.IdentityOf(ctx)].now().downCh
}

// IsUndecided reports whether it is not known yet, after the start, if the user of a request with
// ctx can reach an apiserver: none has answered anything, and they do not all count as lost.
func (u *Upstream) IsUndecided(ctx context.Context) bool {
	return !u.responded.Load() && u.availability[authn.IdentityOf(ctx)].now().up > 0
}

// availability tracks whether any apiserver can be reached, by requests of one Identity.
type availability struct {
	mu   sync.Mutex
	open []int // breakers, by apiserver
	availabilityState
}

type availabilityState struct {
	up     int           // apiservers without an open breaker
	since  time.Time     // of the last change between none and some
	downCh chan struct{} // closed while up is 0
	upCh   chan struct{} // closed while up is more than 0
}

func newAvailability(servers int, now time.Time) *availability {
	upCh := make(chan struct{})
	close(upCh)
	return &availability{
		open:              make([]int, servers),
		availabilityState: availabilityState{up: servers, since: now, downCh: make(chan struct{}), upCh: upCh},
	}
}

// opened records that a breaker of an apiserver opened.
func (r *availability) opened(server int, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[server]++; r.open[server] > 1 {
		return
	}
	if r.up--; r.up == 0 {
		r.since, r.upCh = at, make(chan struct{})
		close(r.downCh)
	}
}

// closed records that a breaker of an apiserver closed.
func (r *availability) closed(server int, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[server]--; r.open[server] > 0 {
		return
	}
	if r.up++; r.up == 1 {
		r.since, r.downCh = at, make(chan struct{})
		close(r.upCh)
	}
}

// now returns the current state.
func (r *availability) now() availabilityState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.availabilityState
}

// Plausible reports whether t may come from a correct clock: a node without a clock battery
// boots in 1970.
func Plausible(t time.Time) bool { return t.Year() >= 2020 }

// outageStart determines when an outage began, perhaps before this process.
type outageStart struct {
	recalled time.Time // zero: unknown
	once     sync.Once
	answered chan struct{} // closed once an apiserver has answered: recalled is obsolete
}

// Recall sets since when the cloud was away, or when it answered last, before this process
// started. Until an apiserver answers, that is reported as the start of the outage. Recall
// must be called first.
func (u *Upstream) Recall(at time.Time) { u.outageStart.recalled = at }

// Answered returns a channel that is closed once any apiserver has answered anything
// useful since the start.
func (u *Upstream) Answered() <-chan struct{} { return u.outageStart.answered }

func (b *outageStart) markAnswered() { b.once.Do(func() { close(b.answered) }) }

// of returns the start of an outage that this process noticed at noticed. It ignores a recalled
// time in the future: the clock may not be set yet.
func (b *outageStart) of(noticed, now time.Time) time.Time {
	select {
	case <-b.answered:
	default:
		if Plausible(b.recalled) && b.recalled.Before(now) {
			return b.recalled
		}
	}
	return onCurrentClock(noticed, now, now.Sub(noticed))
}

// onCurrentClock returns at, a time before now by the monotonic clock, corrected if the wall
// clock was set by more than a minute since.
func onCurrentClock(at, now time.Time, before time.Duration) time.Time {
	shown := now.Round(0).Add(-before)
	if off := shown.Sub(at.Round(0)); off.Abs() < time.Minute {
		return at
	}
	return shown
}
