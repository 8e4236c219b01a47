package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

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
	s.checking.Lock()
	defer s.checking.Unlock()
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
	s.auth.open(time.Now(), refused, stale)
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
		case s.health.err() != nil:
			wait = s.limits.Probe // to check soon after its return
			continue
		}
		wait = min(2*wait, maxPause)
		code, err := s.quickGet(authn.WithIdentity(ctx, authn.Node), "/api")
		if err == nil && code < http.StatusInternalServerError && code != http.StatusUnauthorized && !isTransientStatus(code) && s.transports.Load() == used {
			s.auth.close(time.Now(), "the apiserver takes its credentials after all", nil)
			return
		}
	}
}
