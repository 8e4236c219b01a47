package cache

import (
	"context"
	"slices"
	"sync"
)

// turns bounds how many pieces of answers are produced at the same time. Users take
// turns: one that asks for much waits for itself. It is safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	free  int
	users []string // that wait, whose turn is next first
	queue map[string][]chan struct{}
}

func newTurns(n int) *turns { return &turns{free: n, queue: map[string][]chan struct{}{}} }

// take waits for a turn of a user's. Its error is ctx's; otherwise give has to follow.
func (t *turns) take(ctx context.Context, user string) error {
	turn := t.enqueue(user)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		t.leave(user, turn)
		return context.Cause(ctx)
	}
}

// enqueue returns nil where nobody has to wait, or a channel that is closed when it is
// the caller's turn.
func (t *turns) enqueue(user string) chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free > 0 {
		t.free--
		return nil
	}
	if len(t.queue[user]) == 0 {
		t.users = append(t.users, user)
	}
	turn := make(chan struct{})
	t.queue[user] = append(t.queue[user], turn)
	return turn
}

// leave gives up a place, or the turn that has just come.
func (t *turns) leave(user string, turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place := slices.Index(t.queue[user], turn)
	if place < 0 {
		t.giveLocked()
		return
	}
	t.queue[user] = slices.Delete(t.queue[user], place, place+1)
	if len(t.queue[user]) == 0 {
		delete(t.queue, user)
		t.users = slices.DeleteFunc(t.users, func(other string) bool { return other == user })
	}
}

// give ends a turn.
func (t *turns) give() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.giveLocked()
}

func (t *turns) giveLocked() {
	if len(t.users) == 0 {
		t.free++
		return
	}
	user := t.users[0]
	t.users = t.users[1:]
	turn := t.queue[user][0]
	if t.queue[user] = t.queue[user][1:]; len(t.queue[user]) > 0 {
		t.users = append(t.users, user)
	} else {
		delete(t.queue, user)
	}
	close(turn)
}
