package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// probeInterval is the time between two attempts to reach an apiserver that is
// down. A refused attempt costs two packets.
const probeInterval = time.Second

// health says whether an apiserver can be reached. It is down from the first
// failed attempt to connect until it answers a probe or, where nothing else is
// left to ask, a request. Requests are no probes: nobody is made to wait for an
// apiserver that is known to be down while another one answers.
type health struct {
	log    *slog.Logger
	report func(up bool, at time.Time) // called in the order of the changes
	wake   chan struct{}               // to the prober, when up turns to down; holds one

	mu      sync.Mutex
	since   time.Time // of the last change
	lastErr error     // of the last attempt while down; nil while up
}

// newHealth returns the health of an apiserver that is up until an attempt to
// reach it fails.
func newHealth(log *slog.Logger, report func(up bool, at time.Time)) *health {
	return &health{log: log, report: report, wake: make(chan struct{}, 1), since: time.Now()}
}

// down returns why the apiserver cannot be reached, or nil.
func (h *health) down() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lastErr
}

func (h *health) state() (since time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.since, h.lastErr
}

func (h *health) succeeded(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lastErr == nil {
		return
	}
	lasted := now.Sub(h.since)
	h.since, h.lastErr = now, nil
	h.report(true, now)
	h.log.Info("apiserver answers again", "after", lasted.Round(time.Millisecond))
}

func (h *health) failed(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.lastErr == nil
	h.lastErr = err
	if !first {
		return
	}
	h.since = now
	h.report(false, now)
	h.log.Warn("apiserver cannot be reached", "err", err)
	select {
	case h.wake <- struct{}{}:
	default: // the prober has been told already
	}
}

// run probes while the apiserver is down, until ctx ends.
func (s *server) run(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.health.wake:
		}
		for s.health.down() != nil {
			pause.Reset(probeInterval)
			select {
			case <-ctx.Done():
				return nil
			case <-pause.C:
			}
			s.probe(ctx)
		}
	}
}

// probe asks for anything, without credentials. Whatever the answer says, it is
// an answer, and the connection stays for the next request.
func (s *server) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.handshake)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.address.String()+"/livez", http.NoBody)
	if err != nil {
		s.log.Error("apiserver cannot be probed", "err", err)
		return
	}
	res, err := s.roundTrip(req)
	if err != nil {
		s.log.Debug("apiserver still cannot be reached", "err", err)
		return
	}
	res.Body.Close()
}
