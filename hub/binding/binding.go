package binding

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

const (
	// renewEvery is how often the two objects are read while the cloud is there.
	renewEvery = time.Hour
	// renewUnknown is the same while one of them is not known.
	renewUnknown = 5 * time.Minute
	// mostWait is for how long requests wait for a check, from its beginning.
	mostWait = 10 * time.Second
	// lookEvery is how often the CAs are compared with the record; that reads nothing.
	lookEvery = time.Minute
	// firstAgain and lastAgain bound the time until a cluster is asked again whose answer is still missing.
	firstAgain, lastAgain = 2 * time.Second, time.Minute
)

// ErrAnother is returned by Run.
var ErrAnother = errors.New("the cloud is another cluster than the one that the hub's data is of; the hub starts anew, and sets that aside")

// Upstream sends requests to the apiservers, as upstream.Upstream does.
type Upstream interface {
	http.RoundTripper
	WaitUp(context.Context) error
	Lost(context.Context) <-chan struct{}
	IsUndecided(context.Context) bool
}

// Options are the options of New. All are required.
type Options struct {
	File string // of the record
	Upstream
	// CAs returns those by which the hub verifies the apiserver, in PEM; empty: the system's.
	CAs    func() []byte
	Logger *slog.Logger
}

// Binding is the Upstream of everything else in the hub. It is safe for concurrent use.
type Binding struct {
	Options
	node context.Context // carries the node's identity

	mu       sync.Mutex
	record   Record
	logged   Verdict         // the last one that was
	withheld string          // why nothing is served from the cache, for people; empty: it is
	checked  <-chan struct{} // Lost as of the last check that was answered: while it is open, requests pass
	settled  bool            // that check was definite: it is not to be repeated soon
	asked    time.Time       // when it was
	flight   *flight         // the check under way; nil: there is none
	changed  chan struct{}   // closed, and replaced, when a check has ended
	another  chan struct{}   // closed once the cluster is another, and that is written down

	unwritten bool // the record is not that in the file; of the check under way
}

// flight is a check under way.
type flight struct {
	began time.Time
	done  chan struct{}
	err   error // once done is closed
}

// New returns a Binding that has asked nobody yet.
func New(r Record, o Options) *Binding {
	b := &Binding{Options: o, node: authn.AsNode(context.Background()), record: r, logged: Same, changed: make(chan struct{}), another: make(chan struct{})}
	switch {
	case r.Doubted:
		b.withheld, b.logged = doubtful, Doubtful
	case !r.knows(KeysOf(o.CAs())):
		b.withheld = "the apiserver's CA in the kubeconfig is none of those by which the hub knew its cluster, so what is cached may be another cluster's, and is kept back until the cloud has been reached"
		b.logged = Doubtful
		o.Logger.Warn("what is cached is kept back until the cloud has been reached: the apiserver's CA is none of those by which the hub knew its cluster")
	}
	return b
}

const doubtful = "the cluster has another Service default/kubernetes than the one that the hub's data is of, and no Node of this name: what is cached is kept back until kubelet has registered its Node"

// Withheld returns why nothing is served from the cache, or "".
func (b *Binding) Withheld() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.withheld
}

// MaySend reports whether what was kept for the cloud may be sent: an apiserver can be reached, and nothing speaks against its being
// that of the same cluster.
func (b *Binding) MaySend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.maySendLocked()
}

func (b *Binding) maySendLocked() bool { return b.settled && b.isCheckedLocked() && b.withheld == "" }

// isCheckedLocked reports whether a check has been answered since the cloud was lost last.
func (b *Binding) isCheckedLocked() bool { return b.checked != nil && !isClosed(b.checked) }

// AwaitMaySend returns nil as soon as MaySend, or ctx's error. It needs Run.
func (b *Binding) AwaitMaySend(ctx context.Context) error {
	for {
		b.mu.Lock()
		may, changed := b.maySendLocked(), b.changed
		b.mu.Unlock()
		if may {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// RoundTrip implements http.RoundTripper. No request is sent to a cluster that was not asked which it is, unless the node cannot
// ask: without credentials, nothing is sent as the node.
func (b *Binding) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := b.recognize(r.Context()); err != nil {
		return nil, err
	}
	return b.Upstream.RoundTrip(r)
}

// recognize returns nil once requests may be sent, or will find no apiserver. It starts a check, or waits for the one under way.
func (b *Binding) recognize(ctx context.Context) error {
	b.mu.Lock()
	switch {
	case b.record.Another:
		b.mu.Unlock()
		return unreachable(ErrAnother)
	case b.isCheckedLocked(), isClosed(b.Lost(b.node)):
		b.mu.Unlock()
		return nil
	}
	f := b.checkLocked()
	b.mu.Unlock()
	timer := time.NewTimer(time.Until(f.began.Add(mostWait)))
	defer timer.Stop()
	select {
	case <-f.done:
		return f.err
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// checkLocked returns the check under way, or starts one. It outlives the request that waits for it: others do, too.
func (b *Binding) checkLocked() *flight {
	if b.flight == nil {
		f, lost := &flight{began: time.Now(), done: make(chan struct{})}, b.Lost(b.node)
		b.flight = f
		go func() {
			defer close(f.done)
			f.err = b.check(lost)
		}()
	}
	return b.flight
}

// Run asks the cloud which cluster it is whenever it is back, and from time to time, until ctx ends. It returns ErrAnother, or
// nil.
func (b *Binding) Run(ctx context.Context) error {
	for again := firstAgain; b.WaitUp(authn.AsNode(ctx)) == nil; {
		lost := b.Lost(b.node)
		_ = b.recognize(ctx) // ErrAnother is seen below, and a loss is waited for
		next := b.nextCheck(&again)
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-lost:
			again = firstAgain
		case <-b.another:
			timer.Stop()
			return ErrAnother
		case <-timer.C:
			b.renew(ctx)
		}
		timer.Stop()
	}
	return nil
}

// nextCheck returns when to look again. again is the pause after a check that was not answered.
func (b *Binding) nextCheck(again *time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.maySendLocked() {
		*again = firstAgain
		return lookEvery
	}
	pause := *again
	*again = min(2*pause, lastAgain)
	return pause - rand.N(pause/4) //nolint:gosec // jitter
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// unreachable wraps an error so that it counts as a cloud that cannot be reached.
func unreachable(err error) error { return &upstream.UnreachableError{Attempts: []error{err}} }
