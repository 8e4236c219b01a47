package cache

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// An object that came and went after the version that the apiservers have forgotten is in no list,
// so it is in no event. A watch that is behind the view has to list.
func TestADiffOmitsObjectsThatCameAndWent(t *testing.T) {
	tests := map[string]struct{ seen, want, behind string }{
		"no watch has seen it":         {"", "BOOKMARK:=130", "BOOKMARK:=130"},
		"one has seen it come":         {podEvent("ADDED", "b", "110"), "ADDED:b=110 DELETED:b=110 BOOKMARK:=130", "ERROR:410"},
		"one has seen it come, and go": {podEvent("ADDED", "b", "110") + podEvent("DELETED", "b", "120"), "ADDED:b=110 DELETED:b=120 BOOKMARK:=130", "ERROR:410"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, c := startListed(t, "100", podJSON("a", "50"))
				var watchers []*watcher
				var feeds []*io.PipeWriter
				for range 2 {
					watchers = append(watchers, startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100"))
					feeds = append(feeds, <-u.feeds)
				}
				if test.seen != "" {
					send(t, feeds[0], test.seen)
				}
				synctest.Wait()
				u.shows("130", podJSON("a", "50"))
				u.on("watch", func(r *http.Request) *http.Response {
					if r.URL.Query().Get("resourceVersion") != "130" {
						time.Sleep(time.Second) // nobody finds the list to be as old as the loss
						return respond(http.StatusGone, "{}")
					}
					return u.open(r)
				})
				for _, feed := range feeds {
					feed.Close()
				}
				time.Sleep(10 * time.Second)
				for i, want := range []string{test.want, test.behind} {
					if got := watchers[i].heard(t); got != want {
						t.Errorf("watch %d heard %q, want %q", i, got, want)
					}
				}
			})
		})
	}
}
