package support

import (
	"bytes"
	"context"
	"io"
	"sync"
)

// ringSize is how much of the log is kept in memory: some thousand lines.
const ringSize = 256 << 10

// Ring keeps the last lines that were written to it. The zero value is empty, and usable. It is safe for
// concurrent use.
type Ring struct {
	mu    sync.Mutex
	lines []byte
}

// Write appends whole lines.
func (r *Ring) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, p...)
	if len(r.lines) > ringSize {
		// A quarter goes at a time, so that few bytes are moved for each line.
		rest := r.lines[len(r.lines)-ringSize*3/4:]
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			rest = rest[i+1:]
		}
		r.lines = append(r.lines[:0], rest...)
	}
	return len(p), nil
}

// CopyTo writes the lines to w. It is the Write of a Part.
func (r *Ring) CopyTo(_ context.Context, w io.Writer) error {
	r.mu.Lock()
	lines := bytes.Clone(r.lines)
	r.mu.Unlock()
	_, err := w.Write(lines)
	return err
}
