package cache

import (
	"context"
	"sync"
)

// tasks are goroutines in the background. They are safe for concurrent use.
type tasks struct {
	running context.Context // ends with stop
	cancel  context.CancelFunc
	group   sync.WaitGroup
	// starting is held while a task is started, so that none starts after stop.
	starting sync.Mutex
}

func newTasks() *tasks {
	t := &tasks{}
	t.running, t.cancel = context.WithCancel(context.Background())
	return t
}

// start runs fn in a new goroutine, with a context that ends with stop. It returns false after stop.
func (t *tasks) start(fn func(context.Context)) bool {
	t.starting.Lock()
	defer t.starting.Unlock()
	if t.running.Err() != nil {
		return false
	}
	t.group.Go(func() { fn(t.running) })
	return true
}

// stop ends all tasks, and waits for them.
func (t *tasks) stop() {
	t.starting.Lock()
	t.cancel()
	t.starting.Unlock()
	t.group.Wait()
}
