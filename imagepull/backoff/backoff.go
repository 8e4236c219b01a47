// Package backoff computes how long to wait before a failed attempt is repeated.
package backoff

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Longest is the kubelet's own maximum for an image that cannot be pulled.
	Longest = 5 * time.Minute
	// Jitter is the largest random addition, as a share of the backoff. It keeps a thousand
	// nodes from asking at once a registry that has just returned.
	Jitter = 0.25
)

// After returns the backoff after that many failures in a row, 1 or more. It doubles from first
// to Longest, and jitter is added.
func After(failures int, first time.Duration) time.Duration {
	b := wait.Backoff{Duration: first, Factor: 2, Cap: Longest, Jitter: Jitter, Steps: failures}
	for range failures - 1 {
		b.Step()
	}
	return b.Step()
}
