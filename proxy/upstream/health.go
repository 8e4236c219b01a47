package upstream

import (
	"log/slog"
	"sync"
	"time"
)

// health is the circuit breaker of an apiserver: whether it can be reached, and serves the
// node. It is down from the first failed connection, or failed checkStorage, until the
// apiserver answers a probe or, if all are down, a request. Otherwise requests are not used
// as probes: none waits for an apiserver that is down while another one answers.
type health struct {
	log      *slog.Logger
	onChange func(up bool, at time.Time) // called in the order of the changes
	wake     chan struct{}               // to the prober, when the apiserver goes down; holds one

	answered func() // called with each useful answer; must not call back

	mu      sync.Mutex
	since   time.Time // of the last change
	lastErr error     // of the last attempt while down; nil while up
}

// newHealth returns the health of an apiserver that counts as up.
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

// gotResponse records that a request was answered. It does not mark an apiserver up that did
// not serve the node: not every answer needs its storage.
func (h *health) gotResponse(now time.Time) {
	h.answered()
	if down := h.down(); down != nil && asNotServing(down) == nil {
		h.succeeded(now)
	}
}

// failed records why the apiserver cannot be reached, or does not serve the node.
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
	default: // the prober is notified already
	}
}
