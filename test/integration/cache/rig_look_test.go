package cache

import (
	"errors"
	"os"
	"strings"

	"github.com/edgehub-io/edgehub/test/internal/metric"
)

// metric is the sum of the metric's values over all labels, of which the line has to
// contain each of those given; false where there is none.
func (h *hub) metric(name string, labels ...string) (float64, bool) {
	h.t.Helper()
	sum, found, err := metric.Sum(string(h.api.get(h.t, "/metrics", "").body), name, labels...)
	if err != nil {
		h.t.Fatal(err)
	}
	return sum, found
}

func containsAll(line string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(line, word) {
			return false
		}
	}
	return true
}

// logged reports whether the hub's log has a line with all of these words.
func (h *hub) logged(words ...string) bool {
	text, err := os.ReadFile(h.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if containsAll(line, words) {
			return true
		}
	}
	return false
}
