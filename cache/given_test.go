package cache

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/view"
)

// When a snapshot replaces a damaged file, clients of this process are not served an older state
// than they got before. Before the first client the snapshot is better than nothing.
func TestASnapshotShowsNothingOlderThanClientsHave(t *testing.T) {
	for name, tc := range map[string]struct {
		give       func(t *testing.T, u *upstream, c *Cache) // before the damage is met
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
				get(t, c, urlPods)
				ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
				u.goAway()
			},
			list: view.ErrBehind.Error(), a: view.ErrDoubtful.Error(), b: view.ErrDoubtful.Error(), other: view.ErrBehind.Error(),
		},
		"an object, by the cloud": {
			give: func(t *testing.T, u *upstream, c *Cache) {
				u.comeBack()
				u.onText("get", 200, podJSON("a", "150"))
				get(t, c, urlPodA)
				u.goAway()
			},
			list: "100: a=50 b=51", a: view.ErrDoubtful.Error(), b: view.ErrDoubtful.Error(), other: "100: a=50 b=51",
		},
		"an object, by the cache": {
			give: func(t *testing.T, _ *upstream, c *Cache) { get(t, c, urlPodA) },
			list: view.ErrBehind.Error(), a: view.ErrDoubtful.Error(), b: view.ErrDoubtful.Error(), other: "100: a=50 b=51",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
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
				loseObject(t, dir, "ns/b")

				u.goAway()
				c = startIn(t, dir, u)
				tc.give(t, u, c)
				get(t, c, "/api/v1/namespaces/ns/pods/b") // it meets the damage
				time.Sleep(2 * disk.FirstReopen)
				for url, want := range map[string]string{urlPods: tc.list, urlPodA: tc.a, "/api/v1/namespaces/ns/pods/b": tc.b} {
					if got := get(t, c, url); !strings.HasPrefix(got, want) {
						t.Errorf("offline, with the snapshot: %s: %q, want %q", url, got, want)
					}
				}
				if got := ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods); !strings.HasPrefix(got, tc.other) {
					t.Errorf("offline, with the snapshot: another user's list: %q, want %q", got, tc.other)
				}
				u.comeBack()
				get(t, c, urlPods)
				u.goAway()
				expect(t, c, "when it was read again", urlPods, "200: a=150 b=151")
			})
		})
	}
}
