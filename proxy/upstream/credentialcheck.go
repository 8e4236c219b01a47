package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

// authBreaker is the circuit breaker for requests with the node's credentials. It opens when
// the apiserver answers 401 to such a request, and to a check by the hub right after: a
// single 401 may have another cause, such as a kubelet behind the apiserver. While it is
// open, no request is sent as the node, as if the apiserver were unreachable. It closes
// when there are new credentials, or a probe shows that the apiserver accepts the old ones.
// It does not depend on the validity of a certificate by this machine's clock, which may be
// wrong.
type authBreaker struct {
	log      *slog.Logger
	onChange func(taken bool, at time.Time) // called in the order of the changes
	gauge    prometheus.Gauge
	wake     chan struct{} // to the prober, when the breaker opens; holds one

	checking sync.Mutex // held during a check: one is enough for all requests

	mu    sync.Mutex
	since time.Time // of the last change
	cause error     // why nothing is sent; nil: closed
}

func newAuthBreaker(log *slog.Logger, refused prometheus.Gauge, report func(taken bool, at time.Time)) *authBreaker {
	return &authBreaker{log: log, onChange: report, gauge: refused, wake: make(chan struct{}, 1), since: time.Now()}
}

// err returns why nothing is sent as the node, or nil.
func (a *authBreaker) err() error {
	_, err := a.state()
	return err
}

func (a *authBreaker) state() (since time.Time, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since, a.cause
}

// open opens the breaker, unless stale reports that the credentials have been replaced since.
func (a *authBreaker) open(cause error, stale func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stale() {
		return
	}
	first := a.cause == nil
	a.cause = cause
	if !first {
		return
	}
	a.since = time.Now()
	a.onChange(false, a.since)
	a.gauge.Set(1)
	select {
	case a.wake <- struct{}{}:
	default: // the prober is notified already
	}
	var missing *MissingError
	if !errors.As(cause, &missing) {
		a.log.Warn("apiserver refuses the node's credentials; the node is served from the cache until it has others", "err", cause)
	}
}

// close closes the breaker: the credentials are accepted, or were replaced.
func (a *authBreaker) close(why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cause == nil {
		return
	}
	now := time.Now()
	lasted := now.Sub(a.since)
	a.since, a.cause = now, nil
	a.onChange(true, now)
	a.gauge.Set(0)
	a.log.Info("requests are sent in the node's name again", "reason", why, "after", lasted.Round(time.Millisecond))
}

// RefusedError means that an apiserver does not accept the node's credentials. It has not
// executed the request.
type RefusedError struct{}

func (*RefusedError) Error() string {
	return fmt.Sprintf("it refuses the node's credentials (%d %[2]s)", http.StatusUnauthorized, http.StatusText(http.StatusUnauthorized))
}

// MissingError means that the node has no credentials yet.
type MissingError struct {
	Reason string // for people
}

func (e *MissingError) Error() string { return e.Reason }

// errCredentialsReplaced is returned for a request that was refused with credentials that were
// replaced since.
var errCredentialsReplaced = errors.New("the node's credentials were replaced while the request was under way")

// notAuthorized reports whether err means that the request was not executed because of the
// node's credentials.
func notAuthorized(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) || errors.Is(err, errCredentialsReplaced)
}

// unavailableFor returns why no request of id is sent to the apiserver, or nil.
func (s *server) unavailableFor(id authn.Identity) error {
	if err := s.health.down(); err != nil || id != authn.Node {
		return err
	}
	return s.auth.err()
}

// confirmUnauthorized returns a 401 to a request that was sent with used if a check shows that
// the node's credentials are accepted. Otherwise it returns the error of checkCredentials.
func (s *server) confirmUnauthorized(req *http.Request, res *http.Response, used *transports) (*http.Response, error) {
	err := s.checkCredentials(req.Context(), used)
	if err == nil {
		return s.handleResponse(req, res)
	}
	res.Body.Close()
	return nil, err
}

// checkCredentials sends a request as the node that every authenticated user may send. Its
// error is errCredentialsReplaced, a *RefusedError, or nil, also if the apiserver cannot be
// reached.
func (s *server) checkCredentials(ctx context.Context, used *transports) error {
	s.auth.checking.Lock()
	defer s.auth.checking.Unlock()
	stale := func() bool { return s.transports.Load() != used }
	if stale() {
		return errCredentialsReplaced
	}
	if s.auth.err() != nil {
		return &RefusedError{}
	}
	code, err := s.quickGet(authn.WithIdentity(ctx, authn.Node), "/api")
	switch {
	case stale():
		return errCredentialsReplaced
	case err != nil || code != http.StatusUnauthorized:
		return nil
	}
	refused := &RefusedError{}
	s.auth.open(refused, stale)
	return refused
}

// retryCredentials checks at growing intervals whether the apiserver accepts the node's
// credentials again, because its clock or its list of CAs was wrong. New credentials close
// the breaker without it.
func (s *server) retryCredentials(ctx context.Context) {
	wait := s.limits.Probe
	for {
		pause := time.NewTimer(wait - rand.N(wait/2)) //nolint:gosec // jitter
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		used := s.transports.Load()
		switch cause := s.auth.err(); {
		case cause == nil || used.missing != nil:
			return
		case s.health.down() != nil:
			wait = s.limits.Probe // to check soon after its return
			continue
		}
		wait = min(2*wait, maxPause)
		code, err := s.quickGet(authn.WithIdentity(ctx, authn.Node), "/api")
		if err == nil && code < http.StatusInternalServerError && code != http.StatusUnauthorized && !isTransientStatus(code) && s.transports.Load() == used {
			s.auth.close("the apiserver takes its credentials after all")
			return
		}
	}
}

// nodeAvailability tracks whether the node can use an apiserver: it can be reached, and accepts
// the node's credentials.
type nodeAvailability struct {
	onChange func(usable bool, at time.Time) // must not call back

	mu             sync.Mutex
	up, authorized bool
}

func (u *nodeAvailability) setUp(up bool, at time.Time) { u.set(&u.up, up, at) }

func (u *nodeAvailability) setAuthorized(taken bool, at time.Time) { u.set(&u.authorized, taken, at) }

func (u *nodeAvailability) set(which *bool, value bool, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := u.up && u.authorized
	*which = value
	if now := u.up && u.authorized; now != before {
		u.onChange(now, at)
	}
}
