// Package fairqueue bounds how many pieces of work are done at the same time, and lets
// those who ask for it take turns, so that whoever asks for much waits for itself.
//
// # Flows
//
// A path identifies who asks, for example a tenant and its user. At each level those that
// have somebody waiting take turns: first the tenants, and within a tenant its users. So a
// tenant gets no more turns by having more users. All paths of a [Queue] have the same
// length.
//
// # Bounds
//
// Where too many wait, the newest of the flow of which the most wait is turned away. A
// flow that has few waiting loses none of them to one that has many.
package fairqueue

import (
	"context"
	"errors"
	"sync"
)

// ErrFull is returned to whoever is turned away.
var ErrFull = errors.New("too many are waiting for their turn")

// Queue is safe for concurrent use.
type Queue struct {
	maxWaiting int

	mu   sync.Mutex
	free int // how many more may work; if any, nobody waits
	root flow
}

// New returns a Queue that lets so many work at a time, and at most so many wait; 0 is no
// bound on these.
func New(concurrency, maxWaiting int) *Queue {
	return &Queue{free: concurrency, maxWaiting: maxWaiting}
}

// waiter is a call of Acquire that waits.
type waiter struct {
	done chan struct{} // closed when it is its turn, or err is set
	err  error
}

// Acquire waits for a turn. Its error is the cause of ctx's end, or ErrFull; otherwise
// Release has to follow.
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

// enter returns nil where nobody has to wait.
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
		away := q.root.turnAway()
		away.err = ErrFull
		close(away.done)
	}
	return w
}

// leave gives up a place, or the turn that has just come.
func (q *Queue) leave(path []string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.root.remove(path, w) && w.err == nil {
		q.releaseLocked()
	}
}

// Release ends a turn.
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

// Waiting is how many wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.root.waiting
}
