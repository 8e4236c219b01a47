package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"time"
)

const (
	pollInterval = 50 * time.Millisecond
	// pollAttempt bounds one attempt, so that a request to something that
	// hangs does not eat the whole wait.
	pollAttempt = 2 * time.Second
)

// poll calls check until it returns nil. When ctx ends first, the error holds
// the reason of that and what check has returned last.
func poll(ctx context.Context, check func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, pollAttempt)
		err := check(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last seen: %w", context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

const (
	logTailBytes = 8 << 10
	logTailLines = 15
)

// logTail is the end of a log for an error message, or where to look for it.
func logTail(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Sprintf("\n(its log %s cannot be read: %v)", file, err)
	}
	if len(content) > logTailBytes {
		content = content[len(content)-logTailBytes:]
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	if len(lines) > logTailLines {
		lines = lines[len(lines)-logTailLines:]
	}
	return fmt.Sprintf("\nThe end of its log %s:\n%s", file, bytes.Join(lines, []byte("\n")))
}
