package cache

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// lag sums up how late this process gets the processor, for bounds on how long something
// takes: on a busy machine the hub is late by about as much, and on an idle one it is
// next to nothing.
type lag struct{ sum atomic.Int64 }

// lagStep is the time between two looks at the clock.
const lagStep = 20 * time.Millisecond

// measureLag measures until the test ends.
func measureLag(t *testing.T) *lag {
	t.Helper()
	l, done := &lag{}, make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for last := time.Now(); ; {
			select {
			case <-time.After(lagStep):
			case <-done:
				return
			}
			now := time.Now()
			l.sum.Add(int64(max(now.Sub(last)-lagStep, 0)))
			last = now
		}
	})
	t.Cleanup(func() { close(done); all.Wait() })
	return l
}

// total is the lag since the beginning.
func (l *lag) total() time.Duration { return time.Duration(l.sum.Load()) }
