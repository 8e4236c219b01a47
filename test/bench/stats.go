package main

import (
	"slices"
	"time"

	"github.com/edgehub-io/edgehub/test/bench/results"
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
	limit     float64         // of hub by bare
}

// row has the medians over the rounds, and the range of the ratio.
func (c *compared) row() results.Row {
	var ratios []float64
	for i := range c.hub {
		ratios = append(ratios, float64(c.hub[i])/float64(c.bare[i]))
	}
	return results.Row{
		Name: c.name, Unit: "ms", Baseline: new(milliseconds(median(c.bare))), Value: milliseconds(median(c.hub)),
		Ratio: median(ratios), Range: rangeOf(ratios), Limit: &c.limit,
	}
}

// bounded is a measure of the hub alone, taken in each of several rounds.
type bounded struct {
	name   string
	unit   string
	values []float64 // one a round
	limit  *float64  // nil: none
}

// row has the median over the rounds, and the range.
func (b *bounded) row() results.Row {
	return results.Row{Name: b.name, Unit: b.unit, Value: median(b.values), Range: rangeOf(b.values), Limit: b.limit}
}

func rangeOf(values []float64) *[2]float64 {
	return &[2]float64{slices.Min(values), slices.Max(values)}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func megabytes(n int64) float64 { return float64(n) / 1e6 }
