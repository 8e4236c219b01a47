package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// maxSteps is how many silences of Limits.Loss a probe may have in all: one each
// to connect, for TLS, and for the answer, and one more.
const maxSteps = 4

// run probes while the apiserver is down, and when a silent line asks for it,
// until ctx ends.
func (s *server) run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { s.answerDoubts(ctx) })
	all.Go(func() { s.answerRefusals(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.health.wake:
			s.untilUp(ctx)
		}
	}
}

func (s *server) answerDoubts(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case since := <-s.asked:
			s.probe(ctx, since)
		}
	}
}

func (s *server) answerRefusals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.acceptance.wake:
			s.untilTaken(ctx)
		}
	}
}

// untilUp probes while the apiserver is down. A pause begins with a probe: where
// packets are swallowed the next one follows at once, so that no more than 2 s
// pass between two that the other side might answer. The first pause is shorter, by
// chance: all hubs lose an apiserver in the same moment, and are not to come back in
// the same one.
func (s *server) untilUp(ctx context.Context) {
	pause := time.NewTimer(s.pause() - rand.N(s.limits.Probe)) //nolint:gosec // no secret
	defer pause.Stop()
	for s.health.down() != nil {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		pause.Reset(s.pause())
		s.probe(ctx, time.Now())
	}
}

// pause is the time between two probes. A refused one costs two packets.
func (s *server) pause() time.Duration {
	if asBusy(s.health.down()) != nil {
		return s.answers.pause()
	}
	return s.limits.Probe
}

// probe asks for anything, without credentials, and notes what comes of it: any
// answer is a sign of life, and the connection stays for the next request. Only
// 502, 503, 504 and 429 mean that the apiserver, or what stands in front of it,
// is of no use yet. An apiserver that answered so to everything is asked for
// what it has to know, in the node's name, since its health says little.
//
// Whatever is silent from since on, for as long as Limits.Loss, is lost.
func (s *server) probe(ctx context.Context, since time.Time) {
	was := s.health.down()
	id, path := Own, "/livez"
	if asBusy(was) != nil {
		id, path = Node, "/api"
	}
	code, err := s.get(withIdentity(ctx, id), path, since)
	switch {
	case err != nil:
		s.log.Debug("apiserver cannot be reached by a probe", "err", err)
	case badAnswer(code) && was != nil:
		s.health.failed(time.Now(), &busyError{code})
	case badAnswer(code): // it is there; its answers are counted elsewhere
	default:
		if asBusy(was) != nil {
			s.answers.onTrial()
		}
		s.health.succeeded(time.Now())
	}
}

// get returns the code of a small answer, which is owed from since on.
func (s *server) get(ctx context.Context, path string, since time.Time) (int, error) {
	ctx, cancel := context.WithTimeout(withOwedSince(ctx, since), maxSteps*s.limits.Loss)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address.String()+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	a := &attempt{strict: true, since: since}
	res, err := s.send(a, req)
	if err != nil {
		if !a.reached() && ctx.Err() == nil && !isSilent(err) {
			s.health.failed(time.Now(), err) // an HTTP proxy on the way refuses
		}
		return 0, err
	}
	return res.StatusCode, res.Body.Close()
}

func isSilent(err error) bool {
	var silent *silentError
	return errors.As(err, &silent)
}
