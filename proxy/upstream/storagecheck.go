package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

const (
	// storageTimeout is how long the apiserver may take over the hub's question. It is
	// the apiserver that measures it, by the request's timeout parameter, so that a
	// slow link does not count.
	storageTimeout = "5s"

	// storageDeadline bounds the question where nobody heeds that parameter: a load
	// balancer with backends that hang.
	storageDeadline = 20 * time.Second

	// busyLinkBytes is how much may arrive meanwhile, in bytes, on the connection that
	// carries the question, before its answer is taken for one that waits behind
	// others on a narrow link. The answers to pings do not come to that.
	busyLinkBytes = 64 << 10
)

// leasePath is what the hub asks for when it doubts that an apiserver serves the node:
// the node's own Lease. The request takes the way of the node's own requests through
// load balancer, authentication, priority and fairness, and authorization, and
// without a resourceVersion the apiserver reads it from its storage. So it notices
// what /livez and discovery do not: etcd that is gone or hangs, a load balancer
// without backends, an apiserver that refuses everything. The object is small, every
// kubelet may read it, and where the node has none the 404 comes from storage, too.
//
// /readyz, the alternative, is answered by load balancers themselves, is exempt from
// priority and fairness, and fails while any of its fifty checks does. It is asked only
// where the Lease cannot be: see serves.
func leasePath(node string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/" + url.PathEscape(node) + "?timeout=" + storageTimeout
}

// runStorageChecks asks whenever there is enough doubt, until ctx ends. No request
// waits for that.
func (s *server) runStorageChecks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.checks.wake:
			if s.health.down() == nil {
				s.checkStorage(ctx)
			}
			s.checks.checked(time.Now())
		}
	}
}

// checkStorage asks whether the apiserver serves the node, and declares it lost, or
// back, by the answer. This is all that does so where the apiserver can be reached.
func (s *server) checkStorage(ctx context.Context) {
	err := s.canServe(ctx)
	was := s.health.down()
	switch {
	case was != nil && asNotServing(was) == nil: // meanwhile it cannot even be reached
	case err == nil:
		s.health.succeeded(time.Now())
	case asNotServing(err) != nil:
		s.health.failed(time.Now(), err)
	default:
		s.log.Debug("nothing was learnt of whether the apiserver serves the node", "err", err)
	}
}

// canServe returns nil if the apiserver has read its storage for the node, or refuses to,
// and an *unusableError if it did not. After any other error nothing is known, or it
// has been noted already.
//
// 401 and 403 come before storage: then /readyz, which everybody may read unless the
// cluster's administrator has changed that, decides. Without credentials that are
// taken it is asked for as nobody.
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
		return &notServingError{fmt.Sprintf("it answers %d %s when the hub asks for %s", code, http.StatusText(code), what)}
	}
	return nil
}

// getTwice asks for path, and once more where the connection breaks, which is usual for an
// apiserver that restarts. One whose storage hangs may break off the request alone,
// instead of 504.
func (s *server) getTwice(ctx context.Context, path string) (code int, err error) {
	for range 2 {
		code, err = s.getOnce(ctx, path)
		if err == nil || asNotServing(err) != nil || liveness.IsUnresponsive(err) || undelivered(err) || errors.Is(err, errLinkBusy) || ctx.Err() != nil {
			return code, err
		}
		if !connectionLost(err) {
			break
		}
	}
	return 0, &notServingError{fmt.Sprintf("it breaks off the hub's own request: %v", err)}
}

func (s *server) getOnce(ctx context.Context, path string) (int, error) {
	bound, cancel := context.WithTimeout(ctx, storageDeadline)
	defer cancel()
	a := &liveness.Attempt{}
	code, err := s.get(bound, a, path, time.Now())
	switch {
	case err == nil || ctx.Err() != nil || bound.Err() == nil:
		return code, err
	case a.Received() > busyLinkBytes:
		return 0, errors.Join(errLinkBusy, err)
	}
	return 0, &notServingError{fmt.Sprintf("it has not answered the hub's own request within %v", storageDeadline)}
}

var errLinkBusy = errors.New("other answers are arriving all the time")

// notServingError says that an apiserver can be reached, but does not serve the node.
type notServingError struct{ reason string }

func (e *notServingError) Error() string { return e.reason }

func asNotServing(err error) *notServingError {
	var unusable *notServingError
	errors.As(err, &unusable)
	return unusable
}
