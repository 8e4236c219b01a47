package quota

import (
	"context"
	"errors"
	"sync"
)

// ErrFull is returned to waiters that exceed the bound.
var ErrFull = errors.New("too many are waiting for their turn")

// Queue limits the concurrency of work, and queues it fairly by flow, so that a flow with many requests delays only itself.
// It is safe for concurrent use.
//
// A path identifies a flow, for example a tenant and its user. At each level the queue serves flows round-robin: first the
// tenants, and within a tenant its users. So a tenant gets no larger share by having more users. All paths have the same length.
//
// If too many wait, the newest waiter of the longest flow gets ErrFull. A short flow loses no waiters to a long one.
type Queue struct {
	maxWaiting int

	mu   sync.Mutex
	free int // remaining concurrency; if above 0, there are no waiters
	root flow
}

// NewQueue returns a Queue with this concurrency, and at most maxWaiting waiters; 0 is no limit.
func NewQueue(concurrency, maxWaiting int) *Queue {
	return &Queue{free: concurrency, maxWaiting: maxWaiting}
}

// waiter is a blocked call of Acquire.
type waiter struct {
	done chan struct{} // closed when it may proceed, or err is set
	err  error
}

// Acquire waits in the queue. Its error is the cause of ctx's end, or ErrFull. After nil the
// caller must call Release.
func (q *Queue) Acquire(ctx context.Context, path ...string) error {
	w := q.enter(path)
	if w == nil {
		return nil
	}
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		q.leave(path, w)
		return context.Cause(ctx)
	}
}

// enter returns a waiter, or nil if the caller may proceed.
func (q *Queue) enter(path []string) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.free > 0 {
		q.free--
		return nil
	}
	w := &waiter{done: make(chan struct{})}
	q.root.add(path, w)
	if q.maxWaiting > 0 && q.root.waiting > q.maxWaiting {
		away := q.root.evictNewest()
		away.err = ErrFull
		close(away.done)
	}
	return w
}

// leave removes a waiter, or releases what it has just acquired.
func (q *Queue) leave(path []string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.root.remove(path, w) && w.err == nil {
		q.releaseLocked()
	}
}

// Release undoes Acquire.
func (q *Queue) Release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked()
}

func (q *Queue) releaseLocked() {
	if q.root.waiting == 0 {
		q.free++
		return
	}
	close(q.root.next().done)
}

// Waiting returns the number of waiters.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.root.waiting
}
