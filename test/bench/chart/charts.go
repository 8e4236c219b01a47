package main

import (
	"fmt"
	"strings"

	"github.com/edgehub-io/edgehub/test/bench/results"
)

// row names a row of the results, and how a chart labels it.
type row struct{ part, name, label, note string }

// charts returns all charts.
func charts(rows []results.Row, comparison string) ([]chart, error) {
	ratios, err := ratioChart(rows)
	if err != nil {
		return nil, err
	}
	memory, err := memoryChart(rows)
	if err != nil {
		return nil, err
	}
	yurthub, err := yurthubChart(comparison)
	return []chart{ratios, memory, yurthub}, err
}

// ratioChart shows how much longer requests take through the hub.
func ratioChart(rows []results.Row) (chart, error) {
	online, err := ratioBars(rows, []row{
		{"online", "GET pod, p50", "GET of a pod", ""},
		{"online", "LIST 5000 pods, p50", "LIST of 5,000 pods", ""},
		{"online", "watch event, 200/s, 1 watchers, p50", "Watch event, median", "1 watcher: "},
		{"online", "watch event, 200/s, 1 watchers, p99", "Watch event, p99", "1 watcher: "},
		{"online", "watch event, 200/s, 10 watchers, p50", "Watch event, median", "10 watchers: "},
		{"online", "watch event, 200/s, 10 watchers, p99", "Watch event, p99", "10 watchers: "},
	})
	if err != nil {
		return chart{}, err
	}
	offline, err := ratioBars(rows, []row{
		{"offline", "offline LIST 5000 pods, beside plain bytes", "LIST of 5,000 pods", ""},
	})
	ticks := []float64{0, 0.5, 1, 1.5, 2}
	return chart{
		name:  "benchmark-latency",
		title: "Time through the hub, beside a bare reverse proxy",
		subtitle: []string{
			"How many times as long as the baseline; shorter is better. Below each name: baseline → hub.",
			"Bar: median of the rounds. Whisker: all rounds. Dashed: limit of the median.",
		},
		labels: 250,
		groups: []group{
			{
				heading: "Online: the same requests through a bare httputil.ReverseProxy",
				bars:    online, top: 2.25, ticks: ticks, reference: 1, referenceLabel: "bare proxy",
			},
			{
				heading: "Offline: from the cache, beside a server that has the same bytes in memory",
				bars:    offline, top: 2.25, ticks: ticks, reference: 1, referenceLabel: "plain server",
			},
		},
	}, err
}

func ratioBars(rows []results.Row, wanted []row) ([]bar, error) {
	var bars []bar
	for _, w := range wanted {
		r := results.Find(rows, w.part, w.name)
		if r == nil || r.Baseline == nil || r.Ratio == 0 || r.Limit == nil {
			return nil, fmt.Errorf("the results have no ratio %q with a limit in %s", w.name, w.part)
		}
		bars = append(bars, bar{
			label: w.label, note: fmt.Sprintf("%s%.4g → %.4g %s", w.note, *r.Baseline, r.Value, r.Unit),
			value: r.Ratio, spread: r.Range, text: fmt.Sprintf("%.2f", r.Ratio), rangeText: fmt.Sprintf("%.2f–%.2f", r.Range[0], r.Range[1]),
			limit: r.Limit, limitLabel: fmt.Sprintf("limit %.2f", *r.Limit),
		})
	}
	return bars, nil
}

// memoryChart shows the hub's resident memory.
func memoryChart(rows []results.Row) (chart, error) {
	var bars []bar
	for _, w := range []row{
		{"online", "resident, idle", "Idle", "right after the start"},
		{"reconnect", "resident, each of 100 hubs with 6 watches", "6 watches", "of pods, Services and others; 100 hubs"},
		{"online", "resident, 30 watches after all this", "30 watches of pods", "after all requests of the online part"},
		{"memory", "resident, 5000 pods, 1000 services, 1000 slices, 9 watches", "9 watches of a large cluster", "5,000 pods, 1,000 Services, 1,000 slices"},
		{"memory", "most while all three read at once", "The same: peak", "while three clients read all at once"},
	} {
		r := results.Find(rows, w.part, w.name)
		if r == nil {
			return chart{}, fmt.Errorf("the results have no %q in %s", w.name, w.part)
		}
		b := bar{label: w.label, note: w.note, value: r.Value, spread: r.Range, text: fmt.Sprintf("%.1f MB", r.Value), limit: r.Limit}
		if r.Range != nil {
			b.rangeText = fmt.Sprintf("%.1f–%.1f", r.Range[0], r.Range[1])
		}
		if r.Limit != nil {
			b.limitLabel = fmt.Sprintf("limit %g MB", *r.Limit)
		}
		bars = append(bars, b)
	}
	return chart{
		name:     "benchmark-memory",
		title:    "Resident memory of the hub",
		subtitle: []string{"In MB; shorter is better. Bar: median. Whisker: all rounds. Dashed: limit of the median."},
		labels:   270,
		groups:   []group{{bars: bars, top: 180, ticks: []float64{0, 40, 80, 120, 160}}},
	}, nil
}

// yurthubChart shows the comparison with YurtHub, each row at its own scale.
func yurthubChart(comparison string) (chart, error) {
	c := chart{
		name:  "benchmark-yurthub",
		title: "edgehub beside YurtHub",
		subtitle: []string{
			"Shorter is better. Each pair has its own scale.",
			"Measured in different runs, on machines of the same kind. Whisker: from the least to the most.",
		},
		labels: 90,
	}
	for _, w := range []struct{ name, heading string }{
		{"LIST of 5,000 pods offline", "Offline: LIST of 5,000 pods"},
		{"black hole: first cached GET", "The link swallows everything: until the first cached GET is answered"},
		{"memory with 5,000 pods, 1,000 Services and 1,000 EndpointSlices", "Resident memory with 5,000 pods, 1,000 Services and 1,000 EndpointSlices"},
	} {
		yurthub, edgehub, err := comparisonRow(comparison, w.name)
		if err != nil {
			return chart{}, err
		}
		c.groups = append(c.groups, group{
			heading: w.heading, top: 1.05 * max(yurthub.high, edgehub.high),
			bars: []bar{yurthub.bar("YurtHub"), edgehub.bar("edgehub")},
		})
	}
	return c, nil
}

func (m measured) bar(label string) bar {
	b := bar{label: label, value: m.low, text: m.text, isOther: label != "edgehub"}
	if m.high > m.low {
		b.spread = &[2]float64{m.low, m.high}
	}
	return b
}

// description describes in words what a chart shows, for those who cannot see it.
func (c *chart) description() string {
	var parts []string
	for _, g := range c.groups {
		var bars []string
		for _, b := range g.bars {
			name := b.label
			if b.note != "" {
				name += " (" + b.note + ")"
			}
			text := name + ": " + b.text
			if b.rangeText != "" {
				text += " (" + b.rangeText + ")"
			}
			if b.limit != nil {
				text += ", " + b.limitLabel
			}
			bars = append(bars, text)
		}
		text := strings.Join(bars, "; ") + "."
		if g.heading != "" {
			text = g.heading + ". " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}
