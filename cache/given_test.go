package cache

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// openWithSnapshot opens a cache that has listed pods at version 200, with a snapshot from version
// 100. The file has lost something since. The cloud is away, and the cache does not run yet, so
// nothing has met the damage.
func openWithSnapshot(t *testing.T, u *upstream, damage func(t *testing.T, dir string)) *Cache {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
	c := openCache(t, dir, u)
	stop := runCache(t, c)
	get(t, c, urlPods)
	ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
	time.Sleep(2 * time.Second) // it is on disk
	time.Sleep(time.Minute)     // a snapshot is taken
	if _, err := os.Stat(filepath.Join(dir, "cache.snapshot.db")); err != nil {
		t.Fatal(err)
	}
	u.shows("200", podJSON("a", "150"), podJSON("b", "151"))
	get(t, c, urlPods)
	ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
	stop()
	damage(t, dir)
	u.goAway()
	return openCache(t, dir, u)
}

// loseB is damage that a client meets who reads pod b.
func loseB(t *testing.T, dir string) {
	t.Helper()
	loseObject(t, dir, "ns/b")
}

// meetDamage runs the cache, and reads what is damaged, until the snapshot has replaced the file.
func meetDamage(t *testing.T, c *Cache, url string) {
	t.Helper()
	before, _ := c.disk.Now()
	runCache(t, c)
	get(t, c, url)
	time.Sleep(2 * disk.FirstReopen)
	if after, _ := c.disk.Now(); after == before || !after.Recovery().Snapshot {
		t.Fatal("the snapshot is not in use: this test shows nothing")
	}
}

// When a snapshot replaces a damaged file, clients of this process are not served an older state
// than they got before. Before the first client the snapshot is better than nothing.
func TestASnapshotShowsNothingOlderThanClientsHave(t *testing.T) {
	behind, doubtful := view.ErrBehind.Error(), view.ErrDoubtful.Error()
	for name, tc := range map[string]struct {
		damage     func(t *testing.T, dir string)
		give       func(t *testing.T, u *upstream, c *Cache) // before the damage is met
		list, a, b string                                    // afterwards, offline
		other      string                                    // another user's list
	}{
		"nothing was given": {
			damage: loseB,
			give:   func(*testing.T, *upstream, *Cache) {},
			list:   "100: a=50 b=51", a: "a=50", b: "b=51", other: "100: a=50 b=51",
		},
		"a list, by the cloud": {
			damage: loseB,
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				expect(t, c, "online", urlPods, "200: a=150 b=151")
				ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
				u.goAway()
			},
			list: behind, a: doubtful, b: doubtful, other: behind,
		},
		"a list that is older than the damaged one, by the cloud": {
			damage: loseB,
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				u.onText("list", http.StatusOK, podsJSON("150", podJSON("a", "150")))
				expect(t, c, "online", urlPods+"?resourceVersion=0", "150: a=150")
				u.goAway()
			},
			list: behind, a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
		"an event that the damaged list has, by the cloud": {
			damage: loseB,
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				giveEvent(t, u, c, "120", "150")
				u.goAway()
			},
			list: behind, a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
		"an event that meets the damage, by the cloud": {
			damage: func(t *testing.T, dir string) { t.Helper(); loseMembers(t, dir, "ns/b") },
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				u.on("list", func(*http.Request) *http.Response { return nil })
				giveEvent(t, u, c, "200", "210")
				u.goAway()
			},
			list: behind, a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
		"an object, by the cloud": {
			damage: loseB,
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				expect(t, c, "online", urlPodA, "a=150")
				u.goAway()
			},
			list: "100: a=50 b=51", a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
		"an object, by the cache": {
			damage: loseB,
			give:   func(t *testing.T, _ *upstream, c *Cache) { expect(t, c, "offline", urlPodA, "a=150") },
			list:   behind, a: doubtful, b: doubtful, other: "100: a=50 b=51",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream()
				c := openWithSnapshot(t, u, tc.damage)
				tc.give(t, u, c)
				meetDamage(t, c, urlPodB)
				for url, want := range map[string]string{urlPods: tc.list, urlPodA: tc.a, urlPodB: tc.b} {
					if got := get(t, c, url); !strings.HasPrefix(got, want) {
						t.Errorf("offline, with the snapshot: %s: %q, want %q", url, got, want)
					}
				}
				if got := ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods); !strings.HasPrefix(got, tc.other) {
					t.Errorf("offline, with the snapshot: another user's list: %q, want %q", got, tc.other)
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

// The same where the GET has what the damaged file has, too.
func TestASnapshotShowsNoOlderObjectThanAClientHasReadAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		damage func(t *testing.T, dir string)
		url    string
	}{
		"whose copy can be read": {loseB, urlPodA},
		"whose copy is damaged": {
			func(t *testing.T, dir string) { t.Helper(); loseMembers(t, dir, "ns/b") },
			urlPodA + "?resourceVersion=0", // without it the hub looks at the copy before it asks
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u := newUpstream()
				c := openWithSnapshot(t, u, func(t *testing.T, dir string) {
					t.Helper()
					c := openCache(t, dir, u)
					stop := runCache(t, c)
					get(t, c, urlPodA)
					get(t, c, urlPodB)
					stop()
					tc.damage(t, dir)
				})
				u.comeBack()
				expect(t, c, "online", tc.url, "a=150")
				u.goAway()
				meetDamage(t, c, urlPodB)
				expect(t, c, "offline, with the snapshot", urlPodA, view.ErrDoubtful.Error()+": "+errRefused.Error())
			})
		})
	}
}

// A client reads an answer while the damage is met and the snapshot replaces the file: what it has
// then counts as well.
func TestASnapshotShowsNothingOlderThanAnswersThatItOvertakes(t *testing.T) {
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
				c := openWithSnapshot(t, u, func(t *testing.T, dir string) {
					t.Helper() // of what none of these answers has
					c := openCache(t, dir, u)
					stop := runCache(t, c)
					u.onText("get", http.StatusOK, podJSON("c", "252"))
					get(t, c, urlPodC)
					stop()
					loseObject(t, dir, "ns/c")
				})
				end := tc.begin(t, c)
				meetDamage(t, c, urlPodC)
				if got := end(); got != tc.got {
					t.Errorf("the client got %q, want %q", got, tc.got)
				}
				expect(t, c, "offline, with the snapshot", urlPods, tc.list)
				expect(t, c, "offline, with the snapshot", urlPodA, view.ErrDoubtful.Error()+": "+errRefused.Error())
			})
		})
	}
}

const urlPodC = "/api/v1/namespaces/ns/pods/c"

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
