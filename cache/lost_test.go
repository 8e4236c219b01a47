package cache

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Clients got a list in JSON at 100, which could not be written to disk, or was damaged there. The
// same list in protobuf is at 90, and must not be served as JSON.
func TestALostViewIsNotReplacedByAnOlderRepresentation(t *testing.T) {
	lose := func(c *Cache) {
		id := c.views.Find(podsKey(query.NodeUser)).DiskID()
		c.disk.Change(&store.Change{ID: id, Op: store.MarkStale})
		c.views.MarkStale(id, writeback.ErrOverflow)
	}
	for name, tc := range map[string]struct {
		boot string // of the machine when the hub loses it; "" is this one
		then func(u *upstream, c *Cache, restart func() *Cache) *Cache
		want string
	}{
		"at once": {"", func(_ *upstream, c *Cache, _ func() *Cache) *Cache {
			lose(c)
			return c
		}, view.ErrBehind.Error()},
		"after a restart": {"", func(_ *upstream, c *Cache, restart func() *Cache) *Cache {
			lose(c)
			return restart()
		}, view.ErrBehind.Error()},
		"after a reboot": {"another one", func(_ *upstream, c *Cache, restart func() *Cache) *Cache {
			lose(c)
			return restart()
		}, "90: a=50"},
		"when it was dropped, later": {"", func(u *upstream, c *Cache, _ func() *Cache) *Cache {
			u.comeBack() // else nothing is swept
			c.views.Find(podsKey(query.NodeUser)).Drop()
			time.Sleep(2 * records.SweepEvery)
			u.goAway()
			return c
		}, view.ErrBehind.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
				u.shows("100", podJSON("a", "95"))
				c := openCache(t, dir, u)
				if tc.boot != "" {
					c.disk.Boot = tc.boot
				}
				stop := runCache(t, c)
				older := c.views.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
				fill(t, older, "", "90", true, map[string]string{"a": "50"})
				older.Release()
				inJSON := context.WithValue(t.Context(), acceptKey{}, "application/json")
				ask(inJSON, t, c, http.MethodGet, urlPods)
				time.Sleep(3 * time.Second) // it is on disk
				u.goAway()
				c = tc.then(u, c, func() *Cache {
					stop()
					return startIn(t, dir, u)
				})
				got := ask(inJSON, t, c, http.MethodGet, urlPods)
				if len(got) > len(tc.want) {
					got = got[:len(tc.want)]
				}
				if got != tc.want {
					t.Errorf("offline: %q, want %q", got, tc.want)
				}
			})
		})
	}
}
