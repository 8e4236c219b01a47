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
	idle chan struct{} // closed when n is 0; nil: there was no request yet
}

func (t *tracker) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n++; t.n == 1 {
		t.idle = make(chan struct{})
	}
}

func (t *tracker) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 {
		close(t.idle)
	}
}

// wait returns nil when no requests are in flight, or ctx's error.
func (t *tracker) wait(ctx context.Context) error {
	t.mu.Lock()
	idle := t.idle
	t.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
