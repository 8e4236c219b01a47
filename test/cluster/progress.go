package cluster

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress writes one line per step with the time since the start.
type progress struct {
	mu    sync.Mutex // one line at a time
	out   io.Writer
	start time.Time
}

func newProgress(out io.Writer) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{out: out, start: time.Now()}
}

func (p *progress) step(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%6.1fs  %s\n", time.Since(p.start).Seconds(), fmt.Sprintf(format, args...))
}
