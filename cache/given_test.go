package cache

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/view"
)

// older is a file of pods at version 100, which was not there when the hub began.
type older struct{ *store.Store }

// openBefore returns a cache that has pods at version 200, and a file of pods at version 100. The cloud
// is away.
func openBefore(t *testing.T, u *upstream) (*Cache, older) {
	t.Helper()
	fill := func(version string, pods ...string) string {
		dir := filepath.Join(t.TempDir(), "cache")
		u.shows(version, pods...)
		c := openCache(t, dir, u)
		stop := runCache(t, c)
		get(t, c, urlPods)
		ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
		stop()
		return dir
	}
	before, err := store.Open(fill("100", podJSON("a", "50"), podJSON("b", "51")), store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c := openCache(t, fill("200", podJSON("a", "150"), podJSON("b", "151")), u)
	u.goAway()
	return c, older{before}
}

// replaces makes the older file that of a cache, which then runs.
func (o older) replaces(t *testing.T, c *Cache) {
	t.Helper()
	now, _ := c.disk.Now()
	if err := now.Close(); err != nil {
		t.Fatal(err)
	}
	c.disk.Use(o.Store)
	runCache(t, c)
	time.Sleep(2 * disk.FirstReopen)
}

// When a file is opened late, clients of this process are not served an older state than they got
// before. Before the first client the file is better than nothing.
func TestAFileOpenedLateShowsNothingOlderThanClientsHave(t *testing.T) {
	behind, doubtful := view.ErrBehind.Error(), view.ErrDoubtful.Error()
	for name, tc := range map[string]struct {
		give       func(t *testing.T, u *upstream, c *Cache) // before
		list, a, b string                                    // afterwards, offline
		other      string                                    // another user's list
	}{
		"nothing was given": {
			give: func(*testing.T, *upstream, *Cache) {},
			list: "100: a=50 b=51", a: "a=50", b: "b=51", other: "100: a=50 b=51",
		},
		"a list, by the cloud": {
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				expect(t, c, "online", urlPods, "200: a=150 b=151")
				ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
				u.goAway()
			},
			list: behind, a: doubtful, b: doubtful, other: behind,
		},
		"a list that is older than the damaged one, by the cloud": {
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				u.onText("list", http.StatusOK, podsJSON("150", podJSON("a", "150")))
				expect(t, c, "online", urlPods+"?resourceVersion=0", "150: a=150")
				u.goAway()
			},
			list: behind, a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
		"an event that the damaged list has, by the cloud": {
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				giveEvent(t, u, c, "120", "150")
				u.goAway()
			},
			list: behind, a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
		"an object, by the cloud": {
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				expect(t, c, "online", urlPodA, "a=150")
				u.goAway()
			},
			list: "100: a=50 b=51", a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
		"an object, by the cache": {
			give: func(t *testing.T, _ *upstream, c *Cache) { expect(t, c, "offline", urlPodA, "a=150") },
			list: behind, a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream()
				c, before := openBefore(t, u)
				tc.give(t, u, c)
				before.replaces(t, c)
				for url, want := range map[string]string{urlPods: tc.list, urlPodA: tc.a, urlPodB: tc.b} {
					if got := get(t, c, url); !strings.HasPrefix(got, want) {
						t.Errorf("offline, with the older file: %s: %q, want %q", url, got, want)
					}
				}
				if got := ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods); !strings.HasPrefix(got, tc.other) {
					t.Errorf("offline, with the older file: another user's list: %q, want %q", got, tc.other)
				}
				u.shows("200", podJSON("a", "150"), podJSON("b", "151"))
				u.comeBack()
				get(t, c, urlPods)
				u.goAway()
				expect(t, c, "when it was read again", urlPods, "200: a=150 b=151")
			})
		})
	}
}

// giveEvent has a client that watches from a version get a change of pod a.
func giveEvent(t *testing.T, u *upstream, c *Cache, from, version string) {
	t.Helper()
	w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion="+from)
	send(t, <-u.feeds, podEvent("MODIFIED", "a", version))
	synctest.Wait()
	if got, want := w.heard(t), "MODIFIED:a="+version; got != want {
		t.Errorf("the client heard %q, want %q", got, want)
	}
	w.stop()
	<-w.done
}

// A client reads an answer while the older file replaces the other: what it has then counts as well.
func TestAFileOpenedLateShowsNothingOlderThanAnswersThatItOvertakes(t *testing.T) {
	for name, tc := range map[string]struct {
		begin func(t *testing.T, c *Cache) (end func() string) // end returns what the client got
		got   string
		list  string // afterwards, offline
	}{
		"a list that its client has not read yet": {
			begin: func(t *testing.T, c *Cache) func() string { return beginAnswer(t, c, urlPods) },
			got:   "200: a=150 b=151", list: view.ErrBehind.Error(),
		},
		"initial events that their client has begun to read": {
			begin: func(t *testing.T, c *Cache) func() string {
				return beginAnswer(t, c, urlWatch+"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=30")
			},
			got: "ADDED:a=150 ADDED:b=151 BOOKMARK:=200", list: view.ErrBehind.Error(),
		},
		"a list that was put together just before": {
			begin: func(t *testing.T, c *Cache) func() string {
				snap, err := c.views.Find(podsKey(query.NodeUser)).Snapshot()
				if err != nil {
					t.Fatal(err)
				}
				snap.Close()
				return func() string { snap.MarkServed(); return snap.Version }
			},
			got: "200", list: view.ErrBehind.Error(),
		},
		"an object that was read just before": {
			begin: func(t *testing.T, c *Cache) func() string {
				q := &query.Query{User: query.NodeUser, Verb: "get", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespace: "ns", Name: "a"}
				copies, err := c.views.Seek(q)
				if err != nil {
					t.Fatal(err)
				}
				return func() string { copies[0].MarkServed(); return copies[0].Entry.Version }
			},
			got: "150", list: view.ErrBehind.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream()
				c, before := openBefore(t, u)
				end := tc.begin(t, c)
				before.replaces(t, c)
				if got := end(); got != tc.got {
					t.Errorf("the client got %q, want %q", got, tc.got)
				}
				expect(t, c, "offline, with the older file", urlPods, tc.list)
				expect(t, c, "offline, with the older file", urlPodA, view.ErrDoubtful.Error()+": "+errRefused.Error())
			})
		})
	}
}

// beginAnswer asks for a list or watch, and reads its first byte. end reads the rest, and describes
// all of it.
func beginAnswer(t *testing.T, c *Cache, url string) (end func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url))
	if err != nil {
		t.Fatal(err)
	}
	var w watcher
	if _, err := io.CopyN(&w, res.Body, 1); err != nil {
		t.Fatal(err)
	}
	return func() string {
		defer cancel()
		if _, err := io.Copy(&w, res.Body); err != nil {
			t.Error(err)
		}
		_ = res.Body.Close()
		if strings.Contains(url, "watch") {
			return w.heard(t)
		}
		return described(t, w.body.Bytes())
	}
}
