package proxy

import (
	"context"
	"sync"
)

// tracker counts the requests in flight, including upgraded connections, of which
// http.Server.Shutdown does not know.
type tracker struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // nil without a waiter; closed when n is 0
}

func (t *tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *tracker) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns nil when no requests are in flight, or ctx's error.
func (t *tracker) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
