package cache

import (
	"errors"
	"os"
	"strings"

	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
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

// stock is what a hub holds in its hands.
type stock struct{ goroutines, files float64 }

func (h *hub) takeStock() stock {
	h.t.Helper()
	goroutines, ok := h.metric("go_goroutines")
	files, okFiles := h.metric("process_open_fds")
	if !ok || !okFiles {
		h.t.Fatal("the hub does not tell how many goroutines and files it has")
	}
	return stock{goroutines, files}
}

// awaitStock waits until the hub holds about what it held before: pools and connections
// that are kept for reuse may differ.
func (h *hub) awaitStock(before stock) {
	h.t.Helper()
	var now stock
	defer func() {
		if h.t.Failed() {
			h.t.Logf("before %+v, now %+v", before, now)
		}
	}()
	const moreGoroutines, moreFiles = 15, 8
	poll.Until(h.t, patience, "goroutines and files are as many as before", func() bool {
		now = h.takeStock()
		return now.goroutines <= before.goroutines+moreGoroutines && now.files <= before.files+moreFiles
	})
}
