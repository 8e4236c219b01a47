// Package pause waits: for a time, for a random time, and longer from try to try.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// Sleep returns false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// Jitter is a random time up to d.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d) //nolint:gosec // spreads load; nobody gains from guessing it
}

// Backoff is how long to wait before try n, from 0 on: no two watches, and no two
// nodes, wait equally long.
func Backoff(n int) time.Duration {
	const first, most = 200 * time.Millisecond, 10 * time.Second
	wait := min(first<<min(max(n, 0), 10), most)
	return wait/2 + Jitter(wait)
}
