package upstream

import (
	"log/slog"
	"sync"
	"time"
)

// health says whether an apiserver can be reached, and serves the node. It is down from
// the first failed attempt to connect, or question of askStorage, until it answers a
// probe or, where nothing else is left to ask, a request. Requests are no probes: nobody
// is made to wait for an apiserver that is known to be down while another one answers.
type health struct {
	log      *slog.Logger
	onChange func(up bool, at time.Time) // called in the order of the changes
	wake     chan struct{}               // to the prober, when up turns to down; holds one

	answered func() // called with each useful answer; must not call back

	mu      sync.Mutex
	since   time.Time // of the last change
	lastErr error     // of the last attempt while down; nil while up
}

// newHealth returns the health of an apiserver that is up until an attempt to
// reach it fails.
func newHealth(log *slog.Logger, report func(up bool, at time.Time)) *health {
	return &health{log: log, onChange: report, wake: make(chan struct{}, 1), since: time.Now(), answered: func() {}}
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
	h.answered()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lastErr == nil {
		return
	}
	lasted := now.Sub(h.since)
	h.since, h.lastErr = now, nil
	h.onChange(true, now)
	h.log.Info("apiserver answers again", "after", lasted.Round(time.Millisecond))
}

// gotResponse notes that a request was answered. That is no reason to take an apiserver back
// that did not serve the node: not everything that it answers takes its storage.
func (h *health) gotResponse(now time.Time) {
	h.answered()
	if down := h.down(); down != nil && asNotServing(down) == nil {
		h.succeeded(now)
	}
}

// failed notes why the apiserver cannot be reached.
func (h *health) failed(now time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := h.lastErr == nil
	h.lastErr = err
	if !first {
		return
	}
	h.since = now
	h.onChange(false, now)
	if asNotServing(err) != nil {
		h.log.Warn("apiserver counts as lost", "err", err)
	} else {
		h.log.Warn("apiserver cannot be reached", "err", err)
	}
	select {
	case h.wake <- struct{}{}:
	default: // the prober has been told already
	}
}
