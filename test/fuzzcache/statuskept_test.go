package fuzzcache

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster/link"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

// From one cut to the next the hub has to keep what the node has reported, if it has noticed the first one.
func TestAStatusIsDueAfterACutThatTheHubHasNoticed(t *testing.T) {
	metrics := func(a, b int) string {
		return fmt.Sprintf("edgehub_upstream_up{apiserver=\"a\"} %d\nedgehub_upstream_up{apiserver=\"b\"} %d\n", a, b)
	}
	for name, one := range map[string]struct {
		metrics string        // of the hub at the end of the first cut
		between time.Duration // the cuts
		want    bool
	}{
		"a loss of both apiservers":                         {metrics(0, 0), 7 * time.Second, true},
		"one that is almost over when a black hole follows": {metrics(0, 0), 13 * time.Second, false},
		"a black hole that was not noticed":                 {metrics(1, 1), 0, false},
		"a loss of one apiserver":                           {metrics(0, 1), 0, false},
		"a hub that does not say what it has":               {"", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, newer := aReportedPod(t)
			api := httptest.NewServer(http.HandlerFunc(func(res http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(res, one.metrics) }))
			t.Cleanup(api.Close)
			l, err := link.Listen("127.0.0.1:0", "127.0.0.1:1")
			w.must(err)
			t.Cleanup(func() { _ = l.Close() })
			w.hub = &hubproc.Hub{API: api.URL, Link: l}

			w.cutOff(true)()
			for _, s := range w.log.losses {
				s.begin, s.end = s.begin.Add(-one.between), s.end.Add(-one.between)
			}
			w.statuses.add(newer.key(), &report{n: 5, uid: "u", rev: newer.rev, status: running(newer).status, certain: true, at: time.Now()})
			mend := w.cutOff(true)
			defer mend()
			if _, due := w.statuses.due(newer, time.Now().Add(time.Second)); due != one.want {
				t.Errorf("the status has to be seen: %v", due)
			}
		})
	}
}
