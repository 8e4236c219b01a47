// Package poll waits in tests for what other processes do.
package poll

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Patience is how long a test waits for what has to happen at some time. It is long since the
// machine may be busy, and only spent when something is wrong.
const Patience = 5 * time.Minute

const (
	// interval is the time between two looks.
	interval = 20 * time.Millisecond
	// checkInterval is that of checks, which mostly ask other processes.
	checkInterval = 100 * time.Millisecond
)

// Eventually is Until with Patience.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	Until(t, Patience, what, done)
}

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

// Check returns when check returns nil, and ends the test if it does not before ctx ends, or within
// Patience. The error names what was waited for and what was seen last.
func Check(ctx context.Context, t testing.TB, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	began := time.Now()
	last := errors.New("nothing was seen")
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			last = err // what the deadline cuts off says nothing
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s: %v", time.Since(began).Round(time.Second), what, last)
		case <-ticker.C:
		}
	}
}
