// Package metric reads what a program exposes at /metrics.
package metric

import (
	"fmt"
	"strconv"
	"strings"
)

// Sum adds a metric's values in text, which is in the format of Prometheus, over all
// lines that contain each of these labels, as in `result="ok"`. found is false where
// there is none.
func Sum(text, name string, labels ...string) (sum float64, found bool, err error) {
	for line := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || !strings.HasPrefix(rest, "{") && !strings.HasPrefix(rest, " ") || !containsAll(rest, labels) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, ' ')+1:]), 64)
		if err != nil {
			return 0, false, fmt.Errorf("metric %q: %w", line, err)
		}
		sum, found = sum+value, true
	}
	return sum, found, nil
}

func containsAll(line string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(line, word) {
			return false
		}
	}
	return true
}
