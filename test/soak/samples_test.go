package soak_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/test/internal/metric"
)

const (
	samplePeriod = time.Second
	// mostCPU bounds the CPU time that the hub takes between cuts, as a multiple of that of its
	// clients. They run in this process and get the same events, so a slow machine slows both.
	// The hub takes 2.1 to 2.3 times as much, and 11 times with GOMEMLIMIT=40MiB, which is
	// less than it uses, so that its garbage collector runs all the time.
	mostCPU = 3.0
	// settled is how long after a cut the hub is taken to be as it is between cuts: its
	// watches are resumed within two seconds.
	settled = 6 * time.Second
	rows    = 12 // of the table
)

// measure is something that must stay as it is. What is compared are medians over all
// samples of a time when the link was up.
type measure struct {
	name   string
	unit   float64
	metric string // of the hub's; empty: the bytes on its disk
	// The last may exceed the first by this part, and by so much.
	part, much float64
}

// measures, and why they may grow by what they may: the heap is that after a collection,
// give or take what was made since, some megabytes in a heap of thirty. What is resident
// is what the heap was at its largest, as far as the kernel has not been given it back.
// There are as many goroutines, and open files, as there are connections and requests
// under way. A leak of one goroutine for each watch and cut, the least that would be one,
// is a hundred times as much in the three minutes of make test-all.
var measures = []measure{
	{"heap MB", 1e6, "go_memstats_heap_alloc_bytes", 0.10, 4e6},
	{"resident MB", 1e6, "process_resident_memory_bytes", 0.15, 8e6},
	{"goroutines", 1, "go_goroutines", 0.02, 40},
	{"files", 1, "process_open_fds", 0.02, 20},
	{"disk MB", 1e6, "", 0.20, 8e6},
}

// sample is what was seen at one time, in the order of measures.
type sample struct {
	at      time.Duration
	steady  bool
	values  []float64
	hub     float64       // CPU seconds since its start
	clients time.Duration // CPU time since their start
}

// samples looks at the hub again and again.
type samples struct {
	w     *world
	cuts  *cuts
	began time.Time
	all   []sample
}

func newSamples(w *world, c *cuts, began time.Time) *samples {
	return &samples{w: w, cuts: c, began: began}
}

func (s *samples) run(ctx context.Context) error {
	for pause(ctx, samplePeriod) {
		if err := s.take(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("look at the hub: %w", err)
		}
	}
	return nil
}

func (s *samples) take(ctx context.Context) error {
	now := time.Now()
	owner := &client{base: s.w.hub.API, http: http.DefaultClient}
	a := owner.do(ctx, request{method: http.MethodGet, path: "/metrics", accept: "text/plain"})
	if a.err != nil || a.code != http.StatusOK {
		return fmt.Errorf("/metrics: %d, %w", a.code, a.err)
	}
	took := sample{at: now.Sub(s.began), steady: !s.cuts.touched(now.Add(returnGrace-settled), now)}
	var err error
	for _, m := range measures {
		value, err := s.measure(m, string(a.body))
		if err != nil {
			return err
		}
		took.values = append(took.values, value)
	}
	if took.hub, err = sum(string(a.body), "process_cpu_seconds_total"); err != nil {
		return err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return err
	}
	took.clients = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	s.all = append(s.all, took)
	return nil
}

func (s *samples) measure(m measure, metrics string) (float64, error) {
	if m.metric == "" {
		return size(s.w.hub.Root)
	}
	return sum(metrics, m.metric)
}

func sum(metrics, name string) (float64, error) {
	value, found, err := metric.Sum(metrics, name)
	if err == nil && !found {
		err = fmt.Errorf("no metric %s", name)
	}
	return value, err
}

// size is how much is in the files of a folder.
func size(dir string) (total float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it may be gone again
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			total += float64(info.Size())
		}
		return nil
	})
	return total, err
}

// windows are the two times that are compared: from when the link has been cut in each
// way once, and as long before the end.
func (s *samples) windows(every time.Duration) (early, late []sample) {
	last := s.all[len(s.all)-1].at
	warm := 3 * every
	length := max(every, (last-warm)/6)
	for _, one := range s.all {
		if one.steady && one.at >= warm && one.at < warm+length {
			early = append(early, one)
		}
		if one.steady && one.at > last-length {
			late = append(late, one)
		}
	}
	return early, late
}

// flat fails the test for what has grown.
func (s *samples) flat(every time.Duration) {
	t := s.w.t
	t.Helper()
	early, late := s.windows(every)
	if len(early) < 3 || len(late) < 3 || late[0].at <= early[len(early)-1].at {
		t.Errorf("%d and %d samples: too few to compare; DURATION has to be at least five times CUT_EVERY", len(early), len(late))
		return
	}
	for i, m := range measures {
		was, is := typical(m, early, i), typical(m, late, i)
		t.Logf("%-12s %8.1f from %s to %s, %8.1f from %s to %s; %.1f is allowed", m.name,
			was/m.unit, early[0].at.Round(time.Second), early[len(early)-1].at.Round(time.Second),
			is/m.unit, late[0].at.Round(time.Second), late[len(late)-1].at.Round(time.Second), (was*(1+m.part)+m.much)/m.unit)
		if is > was*(1+m.part)+m.much {
			t.Errorf("%s has grown from %.1f to %.1f", m.name, was/m.unit, is/m.unit)
		}
	}
}

// idle fails the test if the hub computes more between cuts than so little work is worth.
func (s *samples) idle() {
	s.w.t.Helper()
	var hub, clients, over float64
	for i, one := range s.all[1:] {
		if before := s.all[i]; before.steady && one.steady {
			hub, clients, over = hub+one.hub-before.hub, clients+(one.clients-before.clients).Seconds(), over+(one.at-before.at).Seconds()
		}
	}
	s.w.t.Logf("CPU between cuts: %.1f %% of a core, %.2f times what the clients took; %.2f is allowed", 100*hub/over, hub/clients, mostCPU)
	if hub > mostCPU*clients {
		s.w.t.Errorf("the hub took %.2f times the CPU of its clients between cuts", hub/clients)
	}
}

// typical is the median; of the heap, a low value, which is nearest to what a collection
// has left.
func typical(m measure, some []sample, i int) float64 {
	var values []float64
	for _, one := range some {
		values = append(values, one.values[i])
	}
	slices.Sort(values)
	if m.metric == "go_memstats_heap_alloc_bytes" {
		return values[len(values)/10]
	}
	return values[len(values)/2]
}

// table shows medians over time, of all samples.
func (s *samples) table() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-8s", "until")
	for _, m := range measures {
		fmt.Fprintf(&out, " %12s", m.name)
	}
	fmt.Fprintf(&out, " %12s\n", "CPU %")
	for rest, n := s.all, rows; n > 0 && len(rest) > 0; n-- {
		row := rest[:max(1, len(rest)/n)]
		rest = rest[len(row):]
		fmt.Fprintf(&out, "%-8s", row[len(row)-1].at.Round(time.Second))
		for i, m := range measures {
			fmt.Fprintf(&out, " %12.1f", typical(m, row, i)/m.unit)
		}
		spent, over := row[len(row)-1].hub-row[0].hub, (row[len(row)-1].at - row[0].at).Seconds()
		fmt.Fprintf(&out, " %12.1f\n", 100*spent/max(over, 1))
	}
	return out.String()
}
