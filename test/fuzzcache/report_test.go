package fuzzcache

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// findings are what may not be. Those of one kind are counted, and the first of them are
// reported in full.
type findings struct {
	mu    sync.Mutex
	began time.Time
	count map[string]int
	first map[string][]string
	total map[string]int // what was done
}

const enough = 3

func (w *world) report(kind, format string, args ...any) {
	f := &w.findings
	text := fmt.Sprintf(format, args...)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count[kind]++; f.count[kind] <= enough {
		text = fmt.Sprintf("%v: %s", time.Since(f.began).Round(time.Millisecond), text)
		f.first[kind] = append(f.first[kind], text)
		w.t.Logf("%s: %s%s", kind, text, w.hubSaid(time.Minute)) // at once: a run may take an hour
	}
}

// hubSaid returns the warnings and errors that the hub has logged of late.
func (w *world) hubSaid(of time.Duration) string {
	if w.hub == nil {
		return ""
	}
	text, err := os.ReadFile(w.hub.Log)
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		at, rest, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		when, err := time.Parse(time.RFC3339, at)
		if err == nil && time.Since(when) < of && (strings.HasPrefix(rest, "level=WARN") || strings.HasPrefix(rest, "level=ERROR")) {
			out.WriteString("\n\t\tthe hub: " + strings.TrimSpace(line))
		}
	}
	return out.String()
}

// note logs what is done to the links and the hub.
func (w *world) note(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("%8v %s", time.Since(w.findings.began).Round(time.Millisecond), fmt.Sprintf(format, args...))
}

func (w *world) did(what string) {
	f := &w.findings
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total[what]++
}

func (w *world) done(what string) int {
	f := &w.findings
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total[what]
}

// summarize fails the test for what was found, and logs what was done.
func (w *world) summarize() {
	w.t.Helper()
	f := &w.findings
	f.mu.Lock()
	defer f.mu.Unlock()
	var out strings.Builder
	for _, what := range slices.Sorted(maps.Keys(f.total)) {
		fmt.Fprintf(&out, "%8d %s\n", f.total[what], what)
	}
	w.t.Logf("SEED=%d\n%s", w.seed, out.String())
	if len(f.count) == 0 {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(f.count)) {
		w.t.Errorf("%d × %s; the first:\n\t%s", f.count[kind], kind, strings.Join(f.first[kind], "\n\t"))
	}
}
