package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

const (
	// storageTimeout bounds the apiserver's time for the check. The apiserver measures it, by
	// the request's timeout parameter, so that a slow link does not count.
	storageTimeout = "5s"

	// storageDeadline bounds the check if that parameter is ignored, by a load balancer whose
	// backends hang for example.
	storageDeadline = 20 * time.Second

	// busyLinkBytes is how many bytes received meanwhile on the connection of the check show
	// that its answer waits behind others on a slow link. Answers to pings are fewer.
	busyLinkBytes = 64 << 10
)

// leasePath is the request by which the hub checks whether an apiserver serves the node: the
// node's own Lease. It passes the same load balancer, authentication, priority and fairness,
// and authorization as the node's requests, and without a resourceVersion the apiserver
// reads it from its storage. So it detects what /livez and discovery do not: etcd that is
// gone or hangs, a load balancer without backends, an apiserver that refuses everything. The
// object is small, every kubelet may read it, and if the node has none, the 404 comes from
// storage, too.
//
// The alternative /readyz is answered by some load balancers themselves, is exempt from
// priority and fairness, and fails while any of its fifty checks does. It is used only if the
// Lease cannot be read: see canServe.
func leasePath(node string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + url.PathEscape(node) + "?timeout=" + storageTimeout
}

// runStorageCheck is checkStorage when checkTrigger requires it. No request waits for it.
func (s *server) runStorageCheck(ctx context.Context) {
	if s.health.err() == nil {
		s.checkStorage(ctx)
	}
	s.checks.checked(time.Now())
}

// checkStorage checks whether the apiserver serves the node, and marks it down or up. Nothing
// else does so while the apiserver can be reached.
func (s *server) checkStorage(ctx context.Context) {
	err := s.canServe(ctx)
	was := s.health.err()
	switch {
	case was != nil && !is[*notServingError](was): // unreachable by now
	case err == nil:
		s.found()
	case is[*notServingError](err):
		s.lost(err)
	default:
		s.log.Debug("nothing was learnt of whether the apiserver serves the node", "err", err)
	}
}

// canServe returns nil if the apiserver has read its storage for the node, or has refused to,
// and a *notServingError if it failed to. After any other error the result is unknown, or
// recorded already.
//
// 401 and 403 are answered without storage. Then /readyz decides, which everybody may read
// unless the cluster's administrator has changed that. Without accepted credentials the
// request is anonymous.
func (s *server) canServe(ctx context.Context) error {
	code := http.StatusUnauthorized
	if s.auth.err() == nil {
		var err error
		if code, err = s.getTwice(authn.WithIdentity(ctx, authn.Node), s.lease); err != nil {
			return err
		}
	}
	what, id := "the node's Lease", authn.Node
	switch code {
	case http.StatusUnauthorized:
		id = authn.Caller
		fallthrough
	case http.StatusForbidden:
		var err error
		if code, err = s.getTwice(authn.WithIdentity(ctx, id), "/readyz"); err != nil {
			return err
		}
		what = "/readyz"
	}
	if code >= http.StatusInternalServerError || code == http.StatusTooManyRequests {
		return notServing("it answers %d %s when the hub asks for %s", code, http.StatusText(code), what)
	}
	return nil
}

// getTwice requests path, and once more if the connection breaks, as it does when an apiserver
// restarts. An apiserver whose storage hangs may abort only the request, instead of
// answering 504.
func (s *server) getTwice(ctx context.Context, path string) (code int, err error) {
	for range 2 {
		code, err = s.getOnce(ctx, path)
		if err == nil || liveness.IsUnresponsive(err) || errors.Is(err, errLinkBusy) || ctx.Err() != nil || classify(err) == unavailable {
			return code, err
		}
		if classify(err) == aborted {
			break
		}
	}
	return 0, notServing("it breaks off the hub's own request: %v", err)
}

func (s *server) getOnce(ctx context.Context, path string) (int, error) {
	bound, cancel := context.WithTimeout(ctx, storageDeadline)
	defer cancel()
	a := &liveness.Attempt{Probe: true}
	code, err := s.get(bound, a, path)
	switch {
	case err == nil || ctx.Err() != nil || bound.Err() == nil:
		return code, err
	case a.Received() > busyLinkBytes:
		return 0, errors.Join(errLinkBusy, err)
	}
	return 0, notServing("it has not answered the hub's own request within %v", storageDeadline)
}

var errLinkBusy = errors.New("other answers are arriving all the time")

// notServingError means that an apiserver can be reached, but does not serve the node.
type notServingError struct{ reason string }

func (e *notServingError) Error() string { return e.reason }

func notServing(format string, args ...any) error {
	return &notServingError{fmt.Sprintf(format, args...)}
}

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
