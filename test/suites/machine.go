package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/edgehub-io/edgehub/test/internal/leftovers"
)

// load is how busy the machine was meanwhile.
type load struct {
	average string  // of the last minute, at the end
	stolen  float64 // of the processors' time, by other guests of the host, from 0 to 1

	total, steal uint64 // ticks since the machine's start
}

func (l load) String() string {
	if l.average == "" {
		return "-"
	}
	return fmt.Sprintf("load %s, steal %.1f %%", l.average, 100*l.stolen)
}

// look reads the counters. Zero where there are none.
func look() load {
	var l load
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		l.average, _, _ = strings.Cut(string(text), " ")
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return l
	}
	line, _, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal guest guest_nice, proc(5); guests' time
	// is part of user and nice.
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil || i > 8 {
			continue
		}
		l.total += ticks
		if i == 8 {
			l.steal = ticks
		}
	}
	return l
}

func (l load) since(before load) load {
	if total := l.total - before.total; total > 0 {
		l.stolen = float64(l.steal-before.steal) / float64(total)
	}
	return l
}

// preflight returns why this machine cannot run the suites, and what to do.
func preflight(suites []suite) error {
	nodes := os.Geteuid() == 0 && slices.ContainsFunc(suites, func(s suite) bool { return s.nodes })
	return leftovers.Preflight(nodes)
}

// clean ends and removes what a killed run has left. What stays fails the suite.
func (r *runner) clean(ctx context.Context, s suite, res *result) {
	var found bytes.Buffer
	err := leftovers.Clean(context.WithoutCancel(ctx), &found)
	r.say("%s", strings.TrimSpace(found.String()))
	if err != nil {
		res.failures = append(res.failures, &failure{suite: s, pkg: "cleaning", output: err.Error()})
	}
}
