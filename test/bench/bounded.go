package main

import (
	"fmt"
	"slices"
	"time"
)

// bounded is a measure of the hub alone, taken in each of several rounds.
type bounded struct {
	name   string
	unit   string
	values []float64 // one a round
	limit  float64
}

func (b *bounded) fails() bool { return median(b.values) > b.limit }

// String is a row: the median over the rounds, the range, and the verdict.
func (b *bounded) String() string {
	verdict := "ok: at most"
	if b.fails() {
		verdict = "FAILS: over"
	}
	return fmt.Sprintf("%-46s %10.4g %-10s (%.4g to %.4g)  %s %g",
		b.name, median(b.values), b.unit, slices.Min(b.values), slices.Max(b.values), verdict, b.limit)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func megabytes(n int64) float64 { return float64(n) / 1e6 }
