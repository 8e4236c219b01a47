package cache

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

// A client has seen b=95, which the backup lacks.
func TestAWatchIsToldThatTheStoreWasRestored(t *testing.T) {
	tests := map[string]func(t *testing.T, u *upstream, feed *io.PipeWriter){
		"where it broke off": func(_ *testing.T, _ *upstream, feed *io.PipeWriter) { feed.CloseWithError(io.ErrUnexpectedEOF) },
		"where the apiserver ended it, to be stopped": func(_ *testing.T, _ *upstream, feed *io.PipeWriter) {
			feed.Close()
		},
		"where the first question for the version fails": func(_ *testing.T, u *upstream, feed *io.PipeWriter) {
			after := podsJSON("90", podJSON("a", "50"))
			u.on("check", func(*http.Request) *http.Response {
				u.onText("check", http.StatusOK, after)
				return respond(http.StatusServiceUnavailable, "{}")
			})
			feed.CloseWithError(io.ErrUnexpectedEOF)
		},
		"where the cloud was away for an hour": func(_ *testing.T, u *upstream, feed *io.PipeWriter) {
			u.goAway()
			feed.CloseWithError(io.ErrUnexpectedEOF)
			time.Sleep(time.Hour)
			u.comeBack()
		},
	}
	for name, lose := range tests {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "95"))
			w := startWatch(t.Context(), t, c, urlPods+"?watch=true&resourceVersion=100")
			feed := <-u.feeds
			u.shows("90", podJSON("a", "50"))
			told := ""
			c.OnStoreRestored(func() { told += "before " + w.heard(t) + ", " })
			lose(t, u, feed)
			time.Sleep(time.Minute)
			synctest.Wait()
			if told != "before , " {
				t.Errorf("who wants to know of a restore was told: %q; want it told once, before the client", told)
			}
			if got := w.heard(t); got != "ERROR:410" || !w.ended() {
				t.Errorf("the client heard %q, and the stream has ended: %t; want it told to list", got, w.ended())
			}
			if n := u.count("watch"); n != 1 {
				t.Error("the watch was opened again above the apiservers' version, where they hold it in silence")
			}
			get(t, c, urlPods) // as it does
			u.goAway()
			expect(t, c, "offline", urlPods, "90: a=50")
		})
	}
}

func TestAWatchThatWasOpenedOfflineIsToldToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "95"))
		u.goAway()
		w := startWatch(t.Context(), t, c, urlPods+"?watch=true&resourceVersion=100")
		time.Sleep(time.Minute)
		u.shows("90", podJSON("a", "50"))
		u.comeBack()
		time.Sleep(time.Minute)
		if got := w.heard(t); got != "ERROR:410" || !w.ended() {
			t.Errorf("the client heard %q, and the stream has ended: %t; want it told to list", got, w.ended())
		}
	})
}

// Here the hub holds no watch when etcd is restored.
func TestTheCacheFollowsARestoreWhateverRequestComesFirst(t *testing.T) {
	const after = "90: a=50/new"
	for name, test := range map[string]struct {
		url     string // of the first request after it
		dropped bool   // nothing is kept before the next list
	}{
		"a list of the newest state":                 {urlPods, false},
		"a list from an apiserver's memory":          {urlPods + "?resourceVersion=0", true},
		"a watch that begins where the store is now": {urlWatch + "&resourceVersion=90&timeoutSeconds=1", true},
		"initial events":                             {urlInitial + "&timeoutSeconds=1", false},
		"initial events of what is remembered":       {urlWatch + "&timeoutSeconds=1", true},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50", "old"), podJSON("b", "95"))
			get(t, c, urlPodA)
			time.Sleep(5 * time.Second)
			// Version 50 names another state of the object now.
			u.shows("90", podJSON("a", "50", "new"))
			u.on("watch", func(r *http.Request) *http.Response {
				events := podBookmark("90", false)
				if !r.URL.Query().Has("resourceVersion") {
					events = `{"type":"ADDED","object":` + podJSON("a", "50", "new") + "}\n" + podBookmark("90", r.URL.Query().Has("sendInitialEvents"))
				}
				return respond(http.StatusOK, events)
			})
			res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, test.url))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Error(err)
			}
			if err := res.Body.Close(); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Minute)
			if u.goAway(); test.dropped {
				expect(t, c, "offline list, before the next one", urlPods, view.ErrNeverRead.Error())
				expect(t, c, "offline object, before the next list", urlPodA, view.ErrNeverRead.Error())
				u.comeBack()
				get(t, c, urlPods)
				u.goAway()
			}
			if got := get(t, c, urlPods); got != after {
				t.Errorf("offline list: %q, want %q", got, after)
			}
			expect(t, c, "offline object", urlPodA, "a=50/new")
		})
	}
}

func TestEventsOfTwoHistoriesAreNotMixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("1000", podJSON("a", "50"), podJSON("b", "950"))
		c := startCache(t, u)
		get(t, c, urlPods+"?resourceVersion=0")
		u.shows("900", podJSON("a", "50"))
		get(t, c, urlPods+"?resourceVersion=0") // as reflectors without WatchList do
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=900")
		<-u.feeds
		u.shows("901", podJSON("a", "50"), podJSON("c", "901"))
		if <-w.done; w.heard(t) != "ERROR:410" {
			t.Errorf("a watch from before it was known heard %q", w.heard(t))
		}
		get(t, c, urlPods+"?resourceVersion=0")
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=901")
		send(t, <-u.feeds, podEvent("ADDED", "d", "1001"))
		synctest.Wait()
		u.goAway()
		expect(t, c, "offline", urlPods, "1001: a=50 c=901 d=1001")
	})
}

func TestASingleObjectFollowsARestore(t *testing.T) {
	tests := map[string][]string{ // what is read after it
		"where it is read again":            {urlPodA},
		"where its kind is listed":          {urlPods},
		"where it is read again and listed": {urlPods, urlPodA},
	}
	for name, urls := range tests {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("1000", podJSON("a", "1000"))
			c := startCache(t, u)
			get(t, c, urlPodA)
			if urls[0] == urlPods {
				get(t, c, urlPods)
			}
			u.shows("900", podJSON("a", "900"))
			for _, url := range urls {
				get(t, c, url)
			}
			time.Sleep(time.Second)
			u.goAway()
			expect(t, c, "offline", urlPodA, "a=900")
		})
	}
}

// It is unknown whether objects that were read by GET are from before the restore.
func TestSingleObjectsOfOtherKindsAreForgottenWithARestore(t *testing.T) {
	const urlConfigMap = "/api/v1/namespaces/ns/configmaps/a"
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("1000", podJSON("a", "950"))
		c := startCache(t, u)
		get(t, c, urlConfigMap)
		get(t, c, urlPods)
		u.shows("900")
		get(t, c, urlPods)
		time.Sleep(time.Second)
		u.goAway()
		expect(t, c, "offline", urlConfigMap, view.ErrNeverRead.Error())
	})
}

// Who wants to know asks about pods: events have an etcd of their own in many clusters.
func TestARestoreOfAnotherStoreIsNotTold(t *testing.T) {
	for url, want := range map[string]int{urlPods: 1, "/api/v1/nodes": 1, "/api/v1/events": 0} {
		bubble(t, url, func(t *testing.T) {
			u := newUpstream()
			u.shows("1000", podJSON("a", "950"))
			c := startCache(t, u)
			told := 0
			c.OnStoreRestored(func() { told++ })
			get(t, c, url)
			u.shows("900")
			get(t, c, url)
			time.Sleep(time.Second)
			if told != want {
				t.Errorf("it was told %d times, want %d", told, want)
			}
		})
	}
}

// An apiserver may lag behind the others for a while; no view is dropped for that.
func TestAnApiserverThatLagsBehindIsNotARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "95"))
		u.onText("get", http.StatusOK, podJSON("c", "105"))
		get(t, c, modelURL("c"))
		u.onText("list", http.StatusOK, podsJSON("90", podJSON("a", "50")))
		u.onText("get", http.StatusOK, podJSON("c", "102"))
		for range 10 {
			get(t, c, urlPods+anyVersion)
			get(t, c, modelURL("c")+anyVersion)
		}
		time.Sleep(time.Second)
		if n := u.count("check"); n != 1 {
			t.Errorf("the apiservers were asked %d times for their version, want once", n)
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "100: a=50 b=95")
		expect(t, c, "offline, an object that was only read by itself", modelURL("c"), "c=105")
	})
}

// An apiserver may keep leases in an etcd of their own, whose versions prove nothing about pods.
func TestAnEtcdOfItsOwnIsNotARestore(t *testing.T) {
	const urlLeases = "/api/v1/leases"
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		by := func(r *http.Request) *http.Response {
			if strings.Contains(r.URL.Path, "leases") {
				return respond(http.StatusOK, podsJSON("90", podJSON("l", "80")))
			}
			return respond(http.StatusOK, podsJSON("5000", podJSON("a", "4000")))
		}
		u.on("list", by)
		u.on("check", func(r *http.Request) *http.Response {
			if u.count("check") > 2 || strings.Contains(r.URL.Path, "leases") {
				return by(r)
			}
			return respond(http.StatusServiceUnavailable, "{}") // so that leases are the first
		})
		get(t, c, urlLeases)
		get(t, c, urlPods)
		leases := startWatch(t.Context(), t, c, urlLeases+"?watch=true&resourceVersion=90")
		pods := startWatch(t.Context(), t, c, urlPods+"?watch=true&resourceVersion=5000")
		synctest.Wait()
		for len(u.feeds) > 0 {
			(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
		}
		time.Sleep(10 * time.Second)
		if got := leases.heard(t) + pods.heard(t); got != "" || u.count("watch") != 4 {
			t.Errorf("the watches heard %q, and were opened %d times, want twice each", got, u.count("watch"))
		}
		u.goAway()
		expect(t, c, "offline", urlLeases, "90: l=80")
		expect(t, c, "offline", urlPods, "5000: a=4000")
	})
}

// Who may watch, but not list, keeps nobody else from finding out.
func TestARestoreIsFoundThoughOthersMayNotList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		other := as(t.Context(), "coredns.x")
		ask(other, t, c, http.MethodGet, urlPods)
		w := startWatch(t.Context(), t, c, urlPods+"?watch=true&resourceVersion=100")
		u.on("check", func(r *http.Request) *http.Response {
			if r.Header.Get("Authorization") != "" {
				return respond(http.StatusForbidden, "{}")
			}
			return respond(http.StatusOK, podsJSON("60"))
		})
		u.onText("list", http.StatusOK, podsJSON("60", podJSON("a", "50")))
		startWatch(other, t, c, urlWatch+"&resourceVersion=90")
		time.Sleep(time.Second)
		get(t, c, urlPods+anyVersion)
		time.Sleep(time.Second)
		if got := w.heard(t); got != "ERROR:410" {
			t.Errorf("the node's watch heard %q, want 410", got)
		}
	})
}

// A client reads slowly, and so gets what was sent before a restore after it is known.
func TestEventsFromBeforeARestoreAreNotKept(t *testing.T) {
	const urlNodes = "/api/v1/nodes"
	for name, url := range map[string]string{"of a watch": urlWatch + "&resourceVersion=100", "of initial events": urlInitial} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			get(t, c, urlNodes)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url))
			if err != nil {
				t.Fatal(err)
			}
			first := `{"type":"ADDED","object":` + podJSON("x", "118", strings.Repeat("z", 33000)) + "}\n"
			go io.WriteString(<-u.feeds, first+podEvent("DELETED", "a", "120"))
			if _, err := io.ReadFull(res.Body, make([]byte, len(first))); err != nil {
				t.Fatal(err)
			}
			u.shows("60", podJSON("a", "50"))
			get(t, c, urlNodes) // shows the restore
			get(t, c, urlPodA)
			get(t, c, urlPods)
			rest, err := io.ReadAll(res.Body)
			if err := errors.Join(err, res.Body.Close()); err != nil || strings.Contains(string(rest), "DELETED") || !strings.Contains(string(rest), "410") {
				t.Errorf("the client got %s and %v, want it told to list", rest, err)
			}
			u.goAway()
			expect(t, c, "offline", urlPodA, "a=50")
			expect(t, c, "offline", urlPods, "60: a=50")
		})
	}
}

// A watch without a version may begin with what an apiserver remembers.
func TestAWatchOfAnApiserverThatLagsBehindIsNotARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "200", podJSON("a", "50"))
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=200")
		<-u.feeds
		startWatch(t.Context(), t, c, urlWatch)
		send(t, <-u.feeds, podEvent("ADDED", "a", "50"), podBookmark("150", false))
		time.Sleep(5 * time.Second)
		if got := w.heard(t); got != "" {
			t.Errorf("another watch heard %q", got)
		}
		u.goAway()
		expect(t, c, "offline", urlPods, "200: a=50")
	})
}

// What was asked for before a restore is known may be from before it, also where there is no view yet.
func TestAnAnswerFromBeforeARestoreIsNotKept(t *testing.T) {
	const urlNodes = "/api/v1/nodes"
	for name, tt := range map[string]struct {
		url    string
		answer func() *http.Response
		online string
		then   string // read before the answer comes
	}{
		"a list":    {urlPods, func() *http.Response { return respond(http.StatusOK, podsJSON("105", podJSON("a", "104"))) }, "105: a=104", ""},
		"an object": {urlPodA, func() *http.Response { return respond(http.StatusOK, podJSON("a", "104")) }, "a=104", ""},
		"an absence": {urlPodA, func() *http.Response {
			return respond(http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","reason":"NotFound","details":{"name":"a","kind":"pods"}}`)
		}, "404", "a=55"},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			c := startCache(t, u)
			u.shows("100", podJSON("n", "50"))
			get(t, c, urlNodes)
			var late atomic.Bool
			if tt.then != "" {
				get(t, c, urlPods)
			}
			release, answered := make(chan struct{}), make(chan string, 1) // one answer
			answer := func(r *http.Request) *http.Response {
				if !strings.Contains(r.URL.Path, "pods") {
					return respond(http.StatusOK, podsJSON("60", podJSON("n", "50")))
				}
				if late.Swap(true) {
					return respond(http.StatusOK, podJSON("a", "55"))
				}
				<-release
				return tt.answer()
			}
			u.on("list", answer)
			u.on("get", answer)
			go func() { answered <- get(t, c, tt.url) }()
			synctest.Wait()
			get(t, c, urlNodes) // shows the restore
			want := view.ErrNeverRead.Error()
			if tt.then != "" {
				want = tt.then
				expect(t, c, "online, since", urlPodA, want)
			}
			close(release)
			if got := <-answered; got != tt.online {
				t.Errorf("online: %q, want %q", got, tt.online)
			}
			u.goAway()
			expect(t, c, "offline", tt.url, want)
			expect(t, c, "offline", urlNodes, "60: n=50")
		})
	}
}
