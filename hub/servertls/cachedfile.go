package servertls

import (
	"sync"
	"time"
)

// reloadInterval is the minimum time between two reads of a file.
const reloadInterval = 10 * time.Second

// cachedFile caches a value that was read from files that may change. get reads them again if
// the value is older than reloadInterval. If that fails, the last good value stays in use. It is
// safe for concurrent use.
type cachedFile[T any] struct {
	read   func() (T, error)
	failed func(error) // called for the first of several failures in a row

	mu      sync.Mutex
	current T
	readAt  time.Time
	failing bool
}

// newCachedFile reads the files for the first time, which must succeed.
func newCachedFile[T any](read func() (T, error), failed func(error)) (*cachedFile[T], error) {
	current, err := read()
	return &cachedFile[T]{read: read, failed: failed, current: current, readAt: time.Now()}, err
}

func (r *cachedFile[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.readAt) > reloadInterval {
		now, err := r.read()
		if err == nil {
			r.current = now
		} else if !r.failing {
			r.failed(err)
		}
		r.failing, r.readAt = err != nil, time.Now()
	}
	return r.current
}
