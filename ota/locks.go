package ota

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// podLocks lets one request at a time work on a pod. It holds memory for pods
// being worked on only.
type podLocks struct {
	mu    sync.Mutex
	locks map[types.NamespacedName]*podLock
}

// podLock is one pod's lock and how many requests hold it or wait for it.
type podLock struct {
	held  chan struct{} // has room for the one holder; never closed
	users int           // guarded by podLocks.mu
}

func newPodLocks() *podLocks {
	return &podLocks{locks: make(map[types.NamespacedName]*podLock)}
}

// lock waits until no one else works on pod, and returns the function that ends
// the caller's turn. It returns ctx's error if that ends first.
func (l *podLocks) lock(ctx context.Context, pod types.NamespacedName) (unlock func(), err error) {
	p := l.join(pod)
	select {
	case p.held <- struct{}{}:
		return func() { <-p.held; l.leave(pod, p) }, nil
	case <-ctx.Done():
		l.leave(pod, p)
		return nil, ctx.Err()
	}
}

func (l *podLocks) join(pod types.NamespacedName) *podLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.locks[pod]
	if !ok {
		p = &podLock{held: make(chan struct{}, 1)}
		l.locks[pod] = p
	}
	p.users++
	return p
}

func (l *podLocks) leave(pod types.NamespacedName, p *podLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(l.locks, pod)
	}
}
