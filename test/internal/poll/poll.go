// Package poll waits in tests for what other processes do.
package poll

import (
	"testing"
	"time"
)

// interval is the time between two looks.
const interval = 20 * time.Millisecond

// Until returns when done returns true, and ends the test if it does not within a time.
// The error names what was waited for.
func Until(t testing.TB, within time.Duration, what string, done func() bool) {
	t.Helper()
	if !Within(within, done) {
		t.Fatalf("not within %s: %s", within, what)
	}
}

// Within waits until done returns true, and reports whether it did within a time.
func Within(within time.Duration, done func() bool) bool {
	deadline := time.After(within)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !done() {
		select {
		case <-deadline:
			return false
		case <-ticker.C:
		}
	}
	return true
}
