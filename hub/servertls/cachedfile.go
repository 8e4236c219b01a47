package servertls

import (
	"sync"
	"time"
)

// reloadInterval is how often files are read again, at most.
const reloadInterval = 10 * time.Second

// cachedFile is what was read of files that may change: it is read again when it is
// asked for and older than reloadInterval. Files that cannot be read leave the
// last good contents in use. Safe for concurrent use.
type cachedFile[T any] struct {
	read   func() (T, error)
	failed func(error) // hears of the first of failures in a row

	mu      sync.Mutex
	current T
	readAt  time.Time
	failing bool
}

// newCachedFile reads for the first time, which has to work.
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
