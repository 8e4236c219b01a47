package cache

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/relist"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
)

func TestAListCatchesUpWithWhatCameMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		var version atomic.Int64
		version.Store(100)
		u.on("list", func(*http.Request) *http.Response { // over a thin link
			body, out := io.Pipe()
			at := fmt.Sprint(version.Load())
			go func() {
				time.Sleep(10 * time.Second)
				io.WriteString(out, podsJSON(at, podJSON("a", at)))
				out.Close()
			}()
			res := respond(http.StatusOK, "")
			res.Body = body
			return res
		})
		c := startCache(t, u)
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		feed := <-u.feeds
		for range 1500 {
			send(t, feed, podEvent("MODIFIED", "a", fmt.Sprint(version.Add(1))))
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		if n := u.count("list"); n != 1 {
			t.Errorf("%d lists for one gap, while there are 50 events a second", n)
		}
		if got, want := shows(t, c.views.Find(podsKey(query.NodeUser))), "1600 ns/a=1600"; got != want {
			t.Errorf("the view shows %q, want %q", got, want)
		}
	})
}

func TestOpenWatchesAskForListsLessAndLess(t *testing.T) {
	tests := map[string]struct {
		list           func(*http.Request) *http.Response
		lose           bool // what was listed, each time
		events         time.Duration
		total          time.Duration
		first, longest time.Duration // pauses between lists
	}{
		"the apiserver is overloaded": {
			list:   func(*http.Request) *http.Response { return respond(http.StatusServiceUnavailable, "{}") },
			events: 5 * time.Second, total: 30 * time.Minute, first: 2 * time.Second, longest: relist.MaxPause,
		},
		"the disk is full": {
			list: func(*http.Request) *http.Response {
				return respond(http.StatusOK, podsJSON("100", podJSON("a", "50")))
			},
			lose: true, events: 5 * time.Second, total: 30 * time.Minute, first: 2 * time.Second, longest: relist.MaxPause,
		},
		"who may watch may not list": {
			list:   func(*http.Request) *http.Response { return respond(http.StatusForbidden, "{}") },
			events: 10 * time.Minute, total: 20 * time.Hour, first: relist.FirstBackoff, longest: relist.MaxBackoff,
		},
		"what comes is no list": {
			list:   func(*http.Request) *http.Response { return respond(http.StatusOK, "<html>") },
			events: 10 * time.Minute, total: 20 * time.Hour, first: relist.FirstBackoff, longest: relist.MaxBackoff,
		},
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.on("list", test.list)
			c := startCache(t, u)
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
			v, feed := c.views.Find(podsKey(query.NodeUser)), <-u.feeds
			events := int(test.total / test.events)
			for n := range events {
				if test.lose {
					c.views.MarkStale(v.DiskID(), writeback.ErrOverflow)
				}
				send(t, feed, podEvent("MODIFIED", "a", fmt.Sprint(200+n)))
				time.Sleep(test.events)
			}
			lists := u.all("list")
			if len(lists) < 5 {
				t.Fatalf("%d lists: it is given up for good", len(lists))
			}
			before := time.Duration(0)
			for i := range lists[1:] {
				pause := lists[i+1].at.Sub(lists[i].at)
				if least := min(max(2*before-2*test.events, test.first), test.longest); pause < least || pause > test.longest+records.SweepEvery+test.events {
					t.Errorf("list %d comes %s after the one before, which came after %s; want %s to %s", i+1, pause, before, least, test.longest)
				}
				before = pause
			}
			if before < test.longest {
				t.Errorf("the last pause is %s, want %s", before, test.longest)
			}
			synctest.Wait()
			if got, want := len(w.heardEvents(t)), events; got != want {
				t.Errorf("the client got %d events of %d", got, want)
			}
		})
	}
}

// No event shows that the view is lost.
func TestAWatchedViewThatWasLostIsListedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		v := c.views.Find(podsKey(query.NodeUser))
		c.views.MarkStale(v.DiskID(), writeback.ErrOverflow)
		time.Sleep(records.SweepEvery + time.Second)
		if c.lister.Ended(v, time.Time{}) == nil {
			t.Error("it is not listed")
		}
		time.Sleep(relist.Calm + records.SweepEvery)
		if c.lister.Ended(v, time.Time{}) != nil {
			t.Error("what a list has changed is held for good")
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "100: a=50")
	})
}
