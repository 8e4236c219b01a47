package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// A watch whose view is lost gets 410, so that its client lists: once, and again after hours. Otherwise the watch goes on.
func TestTheClientOfAViewThatIsLostIsAskedToListIt(t *testing.T) {
	const from = urlWatch + "&resourceVersion=100"
	for name, lose := range map[string]func(t *testing.T, u *upstream, c *Cache){
		"that was never read": func(*testing.T, *upstream, *Cache) {},
		"whose changes could not be written": func(t *testing.T, u *upstream, c *Cache) {
			get(t, c, urlPods)
			giveUp(c, c.views.Find(podsKey(query.NodeUser)))
		},
		"of which an event could not be read": func(t *testing.T, u *upstream, c *Cache) {
			get(t, c, urlPods)
			w := startWatch(t.Context(), t, c, from)
			send(t, <-u.feeds, podEvent("RENAMED", "a", "105"))
			synctest.Wait()
			w.stop()
			<-w.done
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			dir := filepath.Join(t.TempDir(), "cache")
			c, stop := runIn(t, dir, u)
			lose(t, u, c)
			before := u.count("list")
			asksOnce(t, u, c, from)
			w := startWatch(t.Context(), t, c, from)
			send(t, <-u.feeds, podEvent("MODIFIED", "a", "110"))
			time.Sleep(5 * time.Hour)
			if got := w.heard(t); got != "MODIFIED:a=110" {
				t.Errorf("a client that does not list heard %q", got)
			}
			time.Sleep(2 * time.Hour)
			if got := w.heard(t); got != "MODIFIED:a=110 BOOKMARK:=110 ERROR:410" {
				t.Errorf("hours later it has heard %q, want it asked again", got)
			}
			if n := u.count("list"); n != before {
				t.Errorf("the hub lists by itself, %d times", n-before)
			}
			stop()
			c, stop = runIn(t, dir, u)
			asksOnce(t, u, c, from)
			get(t, c, urlPods)
			w = startWatch(t.Context(), t, c, from)
			send(t, <-u.feeds, podEvent("MODIFIED", "a", "110"))
			synctest.Wait()
			u.goAway()
			expect(t, c, "offline", urlPods, "110: a=110")
			w.stop()
			<-w.done
			stop()
		})
	}
}

// Whoever watches it hears everything, as without the hub.
func TestNobodyIsAskedToListWhatIsNotKept(t *testing.T) {
	for name, tt := range map[string]struct{ accept, url string }{
		"a table":                        {asTable + ",application/json", urlWatch + "&resourceVersion=100"},
		"with an unknown parameter":      {asJSON, urlWatch + "&resourceVersion=100&unknown=1"},
		"what begins with what there is": {asJSON, urlWatch},
		"from whatever version":          {asJSON, urlWatch + "&resourceVersion=0"},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			c := startCache(t, u)
			if tt.accept != asJSON {
				u.on("watch", func(r *http.Request) *http.Response {
					res := u.open(r)
					res.Header.Set("Content-Type", tt.accept)
					return res
				})
			}
			w := startWatch(context.WithValue(t.Context(), acceptKey{}, tt.accept), t, c, tt.url)
			feed := <-u.feeds
			var want []string
			for version := range 60 {
				send(t, feed, podEvent("ADDED", "a", strconv.Itoa(110+version)))
				want = append(want, fmt.Sprintf("ADDED:a=%d", 110+version))
				time.Sleep(time.Minute)
			}
			if got := w.heardEvents(t); !slices.Equal(got, want) {
				t.Errorf("the client heard %q", got)
			}
		})
	}
}

// No event shows that the view is lost.
func TestAViewThatIsLostWhileItIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		startReflector(t, c, "100")
		for i, after := range []time.Duration{time.Minute, 2 * time.Minute, time.Hour} {
			time.Sleep(after)
			giveUp(c, c.views.Find(podsKey(query.NodeUser)))
			time.Sleep(2*view.SweepEvery + time.Second)
			if n := u.count("list"); n != i+2 {
				t.Errorf("%d lists, want %d of the client", n, i+2)
			}
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "100: a=50")
	})
}

func TestAViewThatIsLostAgainAndAgainCostsFewLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		startReflector(t, c, "100")
		v := c.views.Find(podsKey(query.NodeUser))
		for range 12 * 60 {
			giveUp(c, v)
			time.Sleep(time.Minute)
		}
		if n := u.count("list"); n < 5 || n > 15 {
			t.Errorf("%d lists in half a day", n)
		}
	})
}

// A flood of watches of what was never read makes nobody else list again.
func TestAFloodOfWatchesOfLostViewsConcernsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		asksOnce(t, u, c, urlWatch+"&resourceVersion=100")
		for i := range 9000 {
			asksOnceAs(as(t.Context(), "mallory.x"), t, u, c, fmt.Sprintf("%s&labelSelector=n%%3D%d&resourceVersion=100", urlWatch, i))
		}
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		<-u.feeds
		synctest.Wait()
		if got := w.heard(t); got != "" {
			t.Errorf("the node's watch heard %q", got)
		}
	})
}

// Versions go back, and lists fail: each watch of this store ends once, over the jitter, whatever it watches.
func TestAllWatchesOfAStoreThatWasRestoredEnd(t *testing.T) {
	const urlNodes, jitter = "/api/v1/nodes", 10 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		c := startCache(t, u, func(o *Options) { o.ReconnectJitter = jitter })
		coredns := as(t.Context(), "coredns.x")
		get(t, c, urlPods)
		get(t, c, urlNodes)
		ask(coredns, t, c, http.MethodGet, urlPods)
		var watchers []*watcher
		for range 10 {
			watchers = append(watchers,
				startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100"), startWatch(coredns, t, c, urlWatch+"&resourceVersion=100"),
				startWatch(t.Context(), t, c, urlNodes+"?watch=true&resourceVersion=100"))
		}
		synctest.Wait()
		u.onText("list", http.StatusServiceUnavailable, "{}")
		u.onText("check", http.StatusOK, podsJSON("90"))
		(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
		time.Sleep(jitter / 10)
		ended := 0
		for _, w := range watchers {
			if w.ended() {
				ended++
			}
		}
		if ended > len(watchers)/2 {
			t.Errorf("%d of %d watches have ended after a tenth of the jitter", ended, len(watchers))
		}
		u.shows("90", podJSON("a", "50"))
		get(t, c, urlPods)
		time.Sleep(jitter)
		for i, w := range watchers {
			got := strings.ReplaceAll(w.heard(t), "BOOKMARK:=100 ", "") // while it waited
			if got != "ERROR:410" || !w.ended() {
				t.Errorf("watch %d heard %q, and has ended: %t", i, got, w.ended())
			}
		}
		if n := u.count("check"); n != 1 {
			t.Errorf("the version was asked for %d times", n)
		}
		u.goAway()
		expect(t, c, "offline, what was listed since", urlPods, "90: a=50")
		expect(t, c, "offline, what was not", urlNodes, view.ErrNeverRead.Error())
	})
}

// A list that was asked for before a restore is known may be from before it.
func TestAListFromBeforeARestoreIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		answered := make(chan struct{})
		u.on("list", func(r *http.Request) *http.Response {
			<-answered
			return respond(http.StatusOK, podsJSON("105", podJSON("a", "104")))
		})
		late := make(chan string, 1) // one answer
		go func() { late <- get(t, c, urlPods) }()
		synctest.Wait()
		u.shows("60", podJSON("b", "55"))
		get(t, c, urlPods)
		close(answered)
		if got, want := <-late, "105: a=104"; got != want {
			t.Errorf("online: %q, want %q", got, want)
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "60: b=55")
	})
}

// Initial events that began before a restore is known may be from before it, too. Their client begins again.
func TestInitialEventsFromBeforeARestoreAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		w := startWatch(t.Context(), t, c, urlInitial)
		feed := <-u.feeds
		send(t, feed, podEvent("ADDED", "a", "104"))
		synctest.Wait()
		u.shows("60", podJSON("b", "55"))
		get(t, c, urlPods)
		send(t, feed, podBookmark("105", true))
		<-w.done
		if got := w.heard(t); got != "ADDED:a=104 ERROR:410" {
			t.Errorf("the client heard %q", got)
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "60: b=55")
	})
}

// An event that cannot be read has no version. That its client has seen it proves no restore.
func TestAnUnreadableEventIsNoProofOfARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		u.on("watch", func(r *http.Request) *http.Response {
			res := u.open(r)
			if r.Header.Get("Accept") != asJSON {
				res.Header.Set("Content-Type", "application/cbor-seq")
			}
			return res
		})
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		feed := <-u.feeds
		startWatch(context.WithValue(t.Context(), acceptKey{}, "application/cbor"), t, c, urlWatch+"&resourceVersion=100")
		send(t, <-u.feeds, "\xd9\xd9\xf7\xa0")
		synctest.Wait()
		feed.CloseWithError(io.ErrUnexpectedEOF)
		time.Sleep(time.Minute)
		if got := w.heard(t); got != "" {
			t.Errorf("the client of another watch heard %q", got)
		}
		get(t, c, urlPods)
		u.goAway()
		expect(t, c, "offline", urlPods, "100: a=50")
	})
}

// An event overtakes the list that repairs damage. The watch goes on from the list.
func TestDamageIsRepairedThoughAnEventOvertakesTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
		dir := filepath.Join(t.TempDir(), "cache")
		c, stop := runIn(t, dir, u)
		get(t, c, urlPods)
		stop()
		c = startIn(t, dir, u)
		v := c.views.Find(podsKey(query.NodeUser))
		rev, _ := v.Member("ns/a")
		o, err := v.Read("ns/a", rev)
		if err != nil {
			t.Fatal(err)
		}
		if c.logState.Damaged(wal.SumOf(o.Bare), wal.ErrCorrupt); !v.Lost() {
			t.Fatal("nothing is damaged")
		}
		asksOnce(t, u, c, urlWatch+"&resourceVersion=100")
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		u.onText("check", http.StatusOK, podsJSON("105"))
		feed, release, listed := <-u.feeds, make(chan struct{}), make(chan string, 1) // one answer
		u.on("list", func(*http.Request) *http.Response {
			<-release
			return respond(http.StatusOK, podsJSON("103", podJSON("a", "50"), podJSON("b", "51")))
		})
		go func() { listed <- get(t, c, urlPods) }()
		synctest.Wait()
		send(t, feed, podEvent("MODIFIED", "b", "105"))
		synctest.Wait()
		close(release)
		<-listed
		time.Sleep(time.Second)
		if len(u.feeds) == 0 {
			t.Fatal("the watch was not opened anew")
		}
		send(t, <-u.feeds, podEvent("MODIFIED", "b", "105"))
		synctest.Wait()
		if got := u.versionsOf(); got[len(got)-1] != "103" || v.Lost() {
			t.Errorf("the watch was opened at %q, and the view is lost: %t", got, v.Lost())
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "105: a=50 b=105")
	})
}

// What a full disk has lost is not all listed at once.
func TestViewsThatAreLostTogetherAreListedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		c := startCache(t, u)
		var watchers []*watcher
		for i := range 100 {
			selector := fmt.Sprintf("labelSelector=n%%3D%d", i)
			get(t, c, urlPods+"?"+selector)
			watchers = append(watchers, startWatch(t.Context(), t, c, urlWatch+"&"+selector+"&resourceVersion=100"))
		}
		for _, v := range c.views.All() {
			giveUp(c, v)
		}
		ended, most := 0, 0
		for range int(4 * view.SweepEvery / time.Second) {
			before := ended
			time.Sleep(time.Second)
			ended = 0
			for _, w := range watchers {
				if w.ended() {
					ended++
				}
			}
			most = max(most, ended-before)
		}
		if ended != len(watchers) || most > 10 {
			t.Errorf("%d watches were told to list, and %d in one second", ended, most)
		}
	})
}

// Some aggregated apiservers list what has no versions of its own. Such a list is never kept.
func TestNobodyIsAskedToListWhatHasNoVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", ""))
		c := startCache(t, u)
		get(t, c, urlPods)
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		time.Sleep(time.Hour)
		if got := w.heard(t); got != "" {
			t.Errorf("the client heard %q", got)
		}
	})
}

// giveUp loses what a view has, as if the disk did not take it.
func giveUp(c *Cache, v *view.View) { c.logState.GivenUp("view " + string(v.Key.Bytes())) }
