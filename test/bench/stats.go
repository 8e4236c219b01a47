package main

import (
	"fmt"
	"slices"
	"time"
)

// percentile returns the p-th percentile, 0 to 100, of at least one value.
func percentile[T time.Duration | float64](values []T, p float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(p/100*float64(len(sorted))), len(sorted)-1)]
}

func median[T time.Duration | float64](values []T) T { return percentile(values, 50) }

// compared is one measure, taken of the bare proxy and of the hub side by side
// in each of several rounds.
type compared struct {
	name      string
	bare, hub []time.Duration // one a round
	limit     float64         // of hub by bare; 0: none
}

// ratios returns hub by bare for each round.
func (c *compared) ratios() []float64 {
	var out []float64
	for i := range c.hub {
		out = append(out, float64(c.hub[i])/float64(c.bare[i]))
	}
	return out
}

func (c *compared) fails() bool { return c.limit > 0 && median(c.ratios()) > c.limit }

// String is a row of the table: medians over the rounds, and the range of the
// ratio.
func (c *compared) String() string {
	r := c.ratios()
	verdict := ""
	switch {
	case c.fails():
		verdict = fmt.Sprintf("  FAILS: over %.2f", c.limit)
	case c.limit > 0:
		verdict = fmt.Sprintf("  ok: within %.2f", c.limit)
	}
	return fmt.Sprintf("%-46s %12v %12v   %5.2f (%.2f to %.2f)%s",
		c.name, round(median(c.bare)), round(median(c.hub)), median(r), slices.Min(r), slices.Max(r), verdict)
}

// round keeps three digits or so.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
