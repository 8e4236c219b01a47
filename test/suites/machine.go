package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
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
func (r *runner) preflight(_ []suite) error { return nil }

// clean ends and removes what a killed run has left.
func (r *runner) clean(_ context.Context, _ *result) {}
