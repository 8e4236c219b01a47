package registry

import (
	"context"

	"golang.org/x/time/rate"
)

const (
	// A read takes at most a quarter of a second's bytes at once, so that a limit is
	// kept evenly, and no more than readAtMost, nor less than readAtLeast, so that a
	// low limit does not cost a system call for every few bytes.
	readAtLeast = 4 << 10
	readAtMost  = 256 << 10
)

// NewLimiter is nil where there is no limit.
func NewLimiter(bandwidth int64) *rate.Limiter {
	if bandwidth == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bandwidth), int(min(max(bandwidth/4, readAtLeast), readAtMost)))
}

// allowance is the part of p that may be read at once.
func allowance(l *rate.Limiter, p []byte) []byte {
	if l == nil {
		return p
	}
	return p[:min(len(p), l.Burst())]
}

// pay waits until n bytes that have been read are within the limit. What waits here
// is not read from the connection, so that the registry is slowed down in the end.
func pay(ctx context.Context, l *rate.Limiter, n int) error {
	if l == nil || n == 0 {
		return nil
	}
	return l.WaitN(ctx, n)
}
