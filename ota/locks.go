package ota

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// podLocks lets one request at a time work on a pod. The zero value has no locks, and needs no
// memory for pods that nobody works on.
type podLocks struct {
	mu    sync.Mutex
	locks map[types.NamespacedName]chan struct{} // held locks, closed when released
}

// lock waits until no other request works on pod, and returns the function that releases the
// pod. It returns ctx's error if ctx ends first.
func (l *podLocks) lock(ctx context.Context, pod types.NamespacedName) (unlock func(), err error) {
	for {
		released := l.tryLock(pod)
		if released == nil {
			return func() { l.unlock(pod) }, nil
		}
		select {
		case <-released:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tryLock returns nil if it has locked the pod, or else a channel that is closed when the
// present holder releases it.
func (l *podLocks) tryLock(pod types.NamespacedName) (released <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held, ok := l.locks[pod]; ok {
		return held
	}
	if l.locks == nil {
		l.locks = map[types.NamespacedName]chan struct{}{}
	}
	l.locks[pod] = make(chan struct{})
	return nil
}

func (l *podLocks) unlock(pod types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.locks[pod])
	delete(l.locks, pod)
}
