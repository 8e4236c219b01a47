package upstream

import (
	"context"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// run probes while a breaker is open, and checks the apiserver's storage when that is due, until
// ctx ends.
func (s *server) run(ctx context.Context) error {
	var all sync.WaitGroup
	on := func(wake <-chan struct{}, work func(context.Context)) {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-wake:
					work(ctx)
				}
			}
		})
	}
	on(s.health.halfOpen, s.probeUntilUp)
	on(s.auth.halfOpen, s.retryCredentials)
	on(s.checks.wake, s.runStorageCheck)
	all.Wait()
	return nil
}

// probeUntilUp probes while the apiserver is down. The interval includes the probe: if packets
// are dropped the next probe follows at once, so that at most 2 s pass between two that the
// apiserver could answer. The first interval has jitter, because all hubs lose an apiserver
// at the same time, and must not reconnect at the same time.
func (s *server) probeUntilUp(ctx context.Context) {
	wait := s.limits.Probe                      // a refused probe costs only two packets
	pause := time.NewTimer(wait - rand.N(wait)) //nolint:gosec // jitter
	defer pause.Stop()
	for s.health.err() != nil {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if !is[*notServingError](s.health.err()) {
			wait = s.limits.Probe
		} else {
			wait = min(2*wait, maxProbeFactor*s.limits.Probe)
		}
		pause.Reset(wait)
		s.probe(ctx)
	}
}

// maxProbeFactor bounds the interval of probes, in units of Limits.Probe, to an apiserver that
// can be reached but does not serve: it may be overloaded.
const maxProbeFactor = 4

// probe sends a small request without credentials to an apiserver that is down, and records
// the result. Any answer proves that the apiserver can be reached, and the connection is kept
// for the next request. Only 502, 503, 504 and 429 mean that the apiserver, or a load balancer
// in front of it, does not serve yet. An apiserver that was lost because it did not serve the
// node must pass checkStorage instead.
func (s *server) probe(ctx context.Context) {
	switch was := s.health.err(); {
	case was == nil: // it has answered a request meanwhile
		return
	case is[*notServingError](was):
		s.checkStorage(ctx)
		return
	}
	code, err := s.quickGet(authn.WithIdentity(ctx, authn.Caller), "/livez")
	switch {
	case err != nil:
		s.log.Debug("apiserver cannot be reached by a probe", "err", err)
	case isTransientStatus(code):
		s.lost(notServing("it answers %d %s when the hub asks for /livez", code, http.StatusText(code)))
	default:
		s.found()
	}
}

// quickGet returns the status code of a request that an apiserver answers at once: silence is a
// loss.
func (s *server) quickGet(ctx context.Context, path string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, liveness.MaxSteps*s.limits.Loss)
	defer cancel()
	return s.get(ctx, &liveness.Attempt{Probe: true, Strict: true}, path)
}

// get sends a request of the hub's own, and returns the status code. If the connection fails,
// the apiserver is lost.
func (s *server) get(ctx context.Context, a *liveness.Attempt, path string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address.String()+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := s.send(a, req)
	if err != nil {
		if !a.Connected() {
			err = asDialError(err)
			if ctx.Err() == nil && !liveness.IsUnresponsive(err) {
				s.lost(err)
			}
		}
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
