package soak_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"
)

// problems are what should not have been. Those of one kind are counted, and the first
// of them is reported in full: there may be thousands.
type problems struct {
	mu    sync.Mutex
	began time.Time
	count map[string]int
	first map[string]string
}

func newProblems() *problems {
	return &problems{began: time.Now(), count: map[string]int{}, first: map[string]string{}}
}

func (p *problems) add(kind, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count[kind]++
	if p.count[kind] == 1 {
		p.first[kind] = fmt.Sprintf("%s after the start: ", time.Since(p.began).Round(time.Millisecond)) + fmt.Sprintf(format, args...)
	}
}

func (p *problems) report(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, kind := range slices.Sorted(maps.Keys(p.count)) {
		t.Errorf("%d × %s; the first: %s", p.count[kind], kind, p.first[kind])
	}
}
