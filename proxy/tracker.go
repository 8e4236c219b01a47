package proxy

import (
	"context"
	"sync"
)

// tracker counts the requests that are being answered, upgraded connections
// among them, which http.Server.Shutdown does not know of.
type tracker struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // of a wait under way: closed when n is 0; else nil
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

// wait returns nil when nothing is being answered, or ctx's error.
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
