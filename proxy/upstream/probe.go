package upstream

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// maxProbeSteps is how many silences of Limits.Loss a probe may have in all: one each
// to connect, for TLS, and for the answer, and one more.
const maxProbeSteps = 4

// run probes while the apiserver is down, and when a silent connection asks for it,
// until ctx ends.
func (s *server) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.runProbes(ctx) })
	all.Go(func() { s.runStorageChecks(ctx) })
	all.Go(func() { s.runCredentialRetries(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.health.wake:
			s.probeUntilUp(ctx)
		}
	}
}

func (s *server) runProbes(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case since := <-s.conns.Probes():
			s.probe(ctx, since)
		}
	}
}

func (s *server) runCredentialRetries(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.auth.wake:
			s.retryCredentials(ctx)
		}
	}
}

// probeUntilUp probes while the apiserver is down. A pause begins with a probe: where
// packets are swallowed the next one follows at once, so that no more than 2 s
// pass between two that the other side might answer. The first pause is shorter, by
// chance: all hubs lose an apiserver in the same moment, and are not to come back in
// the same one.
func (s *server) probeUntilUp(ctx context.Context) {
	wait := s.limits.Probe                      // a refused probe costs two packets
	pause := time.NewTimer(wait - rand.N(wait)) //nolint:gosec // no secret
	defer pause.Stop()
	for s.health.down() != nil {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		if asNotServing(s.health.down()) == nil {
			wait = s.limits.Probe
		} else {
			wait = min(2*wait, maxProbeFactor*s.limits.Probe)
		}
		pause.Reset(wait)
		s.probe(ctx, time.Now())
	}
}

// maxProbeFactor is how many times Limits.Probe may pass between two probes of an
// apiserver that can be reached and does not serve: it may have too much to do.
const maxProbeFactor = 4

// probe asks for anything, without credentials, and notes what comes of it: any
// answer is a sign of life, and the connection stays for the next request. Only
// 502, 503, 504 and 429 mean that the apiserver, or what stands in front of it,
// is of no use yet. One that is lost because it did not serve the node has to do
// that again: its health says little.
//
// Whatever is silent from since on, for as long as Limits.Loss, is lost.
func (s *server) probe(ctx context.Context, since time.Time) {
	was := s.health.down()
	if asNotServing(was) != nil {
		s.checkStorage(ctx)
		return
	}
	code, err := s.quickGet(authn.WithIdentity(ctx, authn.Caller), "/livez", since)
	switch {
	case err != nil:
		s.log.Debug("apiserver cannot be reached by a probe", "err", err)
	case isTransientStatus(code) && was != nil:
		s.health.failed(time.Now(), &notServingError{fmt.Sprintf("it answers %d %s when the hub asks for /livez", code, http.StatusText(code))})
	case isTransientStatus(code): // it is there; whether it serves is for askStorage to find out
	default:
		s.health.succeeded(time.Now())
	}
}

// quickGet returns the code of an answer that costs the apiserver nothing, and is owed
// from since on.
func (s *server) quickGet(ctx context.Context, path string, since time.Time) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, maxProbeSteps*s.limits.Loss)
	defer cancel()
	return s.get(ctx, &liveness.Attempt{Strict: true, Since: since}, path, since)
}

// get sends a request of the hub's own and returns the code of its answer. If there is
// no connection, the apiserver is lost.
func (s *server) get(ctx context.Context, a *liveness.Attempt, path string, since time.Time) (int, error) {
	req, err := http.NewRequestWithContext(liveness.WithProbeSince(ctx, since), http.MethodGet, s.address.String()+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := s.send(a, req)
	if err != nil {
		if !a.Connected() {
			err = asDialError(err)
			if ctx.Err() == nil && !liveness.IsUnresponsive(err) {
				s.health.failed(time.Now(), err)
			}
		}
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}
