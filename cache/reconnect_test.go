package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
)

func TestWatchesComeBackOverTheWholeJitter(t *testing.T) {
	tests := map[string]bool{ // whether an attempt is made before the loss is known
		"the loss is known first":             false,
		"the first attempt meets the refusal": true,
	}
	for name, refused := range tests {
		bubble(t, name, func(t *testing.T) {
			const watches, spread = 20, 10 * time.Minute // longer than from bookmark to bookmark
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c := startCache(t, u, func(o *Options) { o.ReconnectJitter = spread })
			get(t, c, urlPods)
			for range watches {
				startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
			}
			if !refused {
				u.goAway()
			}
			u.on("watch", func(*http.Request) *http.Response { return nil })
			for range watches {
				(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
			}
			time.Sleep(time.Second)
			if refused {
				u.goAway()
			}
			time.Sleep(5 * time.Minute)
			u.on("watch", u.open)
			before, back := u.count("watch"), time.Now()
			u.comeBack()
			time.Sleep(spread + time.Minute)
			resumed := u.all("watch")[before:]
			if len(resumed) != watches {
				t.Fatalf("%d watches were opened again, of %d", len(resumed), watches)
			}
			first, last := resumed[0].at.Sub(back), resumed[watches-1].at.Sub(back)
			if last-first < spread/5 || last > spread+time.Second { // by chance once in 10^13 runs
				t.Errorf("they came back after %s to %s, want them spread over %s", first, last, spread)
			}
			if n := u.count("list"); n != 1 {
				t.Errorf("%d lists, want none but the client's", n-1)
			}
		})
	}
}

// What an apiserver has forgotten its clients list, each once; the hub asks for the version only.
func TestAForgottenVersionIsPassedOn(t *testing.T) {
	for name, forget := range map[string]answerFunc{
		"by the answer": func(*http.Request) *http.Response { return respond(http.StatusGone, "{}") },
		"by an event": func(*http.Request) *http.Response {
			return respond(http.StatusOK, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`+"\n")
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "60"))
			var watchers []*watcher
			for range 10 {
				watchers = append(watchers, startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100"))
			}
			u.shows("130", podJSON("a", "120"), podJSON("c", "110"))
			u.on("watch", forget)
			u.goAway()
			for range watchers {
				(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
			}
			time.Sleep(time.Second)
			u.comeBack()
			time.Sleep(30 * time.Second)
			for _, w := range watchers {
				if got, want := w.heard(t), "ERROR:410"; got != want || !w.ended() {
					t.Errorf("a client heard %q, want %q; it has ended: %t", got, want, w.ended())
				}
			}
			if lists, checks := u.count("list"), u.count("check"); lists != 1 || checks != 1 {
				t.Errorf("%d lists besides the client's and %d questions for the version, want none and one", lists-1, checks)
			}
			if got, want := valueOf(t, c.metrics.expired), float64(len(watchers)); got != want {
				t.Errorf("%v watches are counted, want %v", got, want)
			}
			u.goAway()
			expect(t, c, "offline", urlPods, "100: a=50 b=60")
		})
	}
}

func TestAWatchEndsInTimeThoughTheQuestionForTheVersionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100&timeoutSeconds=30")
		feed := <-u.feeds
		u.on("check", u.open)
		feed.CloseWithError(io.ErrUnexpectedEOF)
		time.Sleep(25 * time.Second)
		if u.count("check") == 0 || w.ended() {
			t.Fatalf("after 25 s there were %d questions, and the watch has ended: %t", u.count("check"), w.ended())
		}
		time.Sleep(10 * time.Second)
		if !w.ended() {
			t.Error("the watch is open beyond the time its client has asked for")
		}
	})
}

func TestVersionsOfOtherStoresAreNotCompared(t *testing.T) {
	const urlEvents = "/api/v1/events"
	eventsJSON := func(version string) string {
		return strings.Replace(podsJSON(version), "PodList", "EventList", 1)
	}
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		main := "100"
		answer := func(r *http.Request) *http.Response {
			if r.URL.Path == urlEvents {
				return respond(http.StatusOK, eventsJSON("8000"))
			}
			return respond(http.StatusOK, podsJSON(main))
		}
		u.on("list", answer)
		u.on("check", answer)
		c := startCache(t, u)
		get(t, c, urlPods)
		get(t, c, urlEvents)
		ofPods := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		ofEvents := startWatch(t.Context(), t, c, urlEvents+"?watch=true&allowWatchBookmarks=true&resourceVersion=8000")
		u.goAway()
		for range 2 {
			(<-u.feeds).Close()
		}
		time.Sleep(time.Second)
		main = "90"
		u.comeBack()
		time.Sleep(30 * time.Second)
		if got := ofPods.heard(t); got != "ERROR:410" {
			t.Errorf("the watch of pods heard %q, though their store was restored", got)
		}
		if got := ofEvents.heard(t); got != "" || ofEvents.ended() {
			t.Errorf("the watch of events heard %q, though nothing has happened to their store", got)
		}
	})
}

func TestEndedStreamsReleaseTheirViews(t *testing.T) {
	tests := map[string]struct {
		url  string
		then func(t *testing.T, u *upstream, feed *io.PipeWriter)
	}{
		"fed by an apiserver": {urlWatch + "&resourceVersion=100", func(t *testing.T, _ *upstream, feed *io.PipeWriter) {
			send(t, feed, podEvent("ADDED", "b", "110"))
		}},
		"held open without the cloud": {urlWatch + "&resourceVersion=100", func(_ *testing.T, u *upstream, feed *io.PipeWriter) {
			if u.isUp() {
				u.goAway()
			}
			feed.CloseWithError(io.ErrUnexpectedEOF)
		}},
		"in the middle of initial events": {urlWatch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", func(t *testing.T, _ *upstream, feed *io.PipeWriter) {
			send(t, feed, podEvent("ADDED", "a", "50"))
		}},
		"in the middle of an event": {urlWatch + "&resourceVersion=100", func(t *testing.T, _ *upstream, feed *io.PipeWriter) {
			send(t, feed, podEvent("ADDED", "b", "110")[:40])
		}},
		"while the question for the version hangs": {urlWatch + "&resourceVersion=100", func(_ *testing.T, u *upstream, feed *io.PipeWriter) {
			u.on("check", u.open)
			feed.CloseWithError(io.ErrUnexpectedEOF)
		}},
		"while it waits to be opened again": {urlWatch + "&resourceVersion=100", func(_ *testing.T, u *upstream, feed *io.PipeWriter) {
			u.onText("watch", http.StatusServiceUnavailable, "{}")
			feed.CloseWithError(io.ErrUnexpectedEOF)
		}},
		"ended by the apiserver": {urlWatch + "&resourceVersion=100&timeoutSeconds=1", func(_ *testing.T, _ *upstream, feed *io.PipeWriter) {
			feed.Close()
		}},
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) { // whose end fails the test if a goroutine is left
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c, stop := runIn(t, t.TempDir(), u)
			get(t, c, urlPods)
			var watchers []*watcher
			for range 10 {
				watchers = append(watchers, startWatch(t.Context(), t, c, test.url))
			}
			for range watchers {
				test.then(t, u, <-u.feeds)
			}
			time.Sleep(10 * time.Second)
			for _, w := range watchers {
				w.stop()
				<-w.done
			}
			v := c.views.Find(podsKey(query.NodeUser))
			if n := v.Holders(); n > 0 {
				t.Errorf("%d requests hold the view, and none is there", n)
			}
			stop()
		})
	}
}

func TestAbandonedOfflineAnswersHoldNothing(t *testing.T) {
	for _, url := range []string{urlPods, urlWatch, urlWatch + "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
		bubble(t, url, func(t *testing.T) {
			u := newUpstream()
			var all []string
			for i := range 500 {
				all = append(all, podJSON(fmt.Sprintf("p%03d", i), fmt.Sprint(i+1)))
			}
			u.shows("10000", all...)
			c := startCache(t, u)
			get(t, c, urlPods)
			time.Sleep(5 * time.Second) // it is on disk
			u.goAway()
			ctx, cancel := context.WithCancel(t.Context())
			res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(res.Body, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
