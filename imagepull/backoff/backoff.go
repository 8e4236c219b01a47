// Package backoff is how long to wait before the next attempt at what has failed.
package backoff

import (
	"math/rand/v2"
	"time"
)

const (
	// Longest is kubelet's own for an image that could not be pulled.
	Longest = 5 * time.Minute
	// Jitter spreads retries, as a part of the backoff, so that a thousand nodes do not
	// ask a registry at once that has just come back.
	Jitter = 0.25
)

// After returns how long to wait after that many failures in a row: it doubles from
// first to Longest, with jitter.
func After(failures int, first time.Duration) time.Duration {
	d := first
	for range failures - 1 {
		if d *= 2; d >= Longest {
			break
		}
	}
	d = min(d, Longest)
	return d + time.Duration(Jitter*(2*rand.Float64()-1)*float64(d))
}

// Spread returns d and up to Jitter of it more: for who asked not to come back earlier.
func Spread(d time.Duration) time.Duration {
	return d + time.Duration(Jitter*rand.Float64()*float64(d))
}
