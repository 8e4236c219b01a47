// Package poll waits in tests for what other processes do.
package poll

import (
	"testing"
	"time"
)

// interval is the time between two looks.
const interval = 20 * time.Millisecond

// Until returns when done holds, and ends the test if it does not within a time. what says in
// the error what was waited for.
func Until(t testing.TB, within time.Duration, what string, done func() bool) {
	t.Helper()
	deadline := time.After(within)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", within, what)
		case <-ticker.C:
		}
	}
}
