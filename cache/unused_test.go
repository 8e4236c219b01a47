package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/tee"
)

// keptViews are the users whose views of all pods are kept.
func keptViews(c *Cache) map[string]bool {
	kept := map[string]bool{}
	for _, s := range c.State() {
		kept[s.User] = true
	}
	return kept
}

func TestViewsThatNobodyReadsGo(t *testing.T) {
	const user = `user:"somebody"#`
	tests := map[string]struct {
		user  string
		do    func(c *Cache, v *view)
		stays bool
	}{
		"nobody has read it for 30 days":     {user, func(*Cache, *view) {}, false},
		"somebody has read it":               {user, func(c *Cache, v *view) { v.touch(c.now()) }, true},
		"somebody watches it":                {user, func(_ *Cache, v *view) { v.holders.Add(1) }, true},
		"the kubelet's, where none runs now": {query.NodeUser, func(*Cache, *view) {}, true},
		"what no kubelet reads any more": {query.NodeUser, func(c *Cache, _ *view) {
			c.views.acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "nodes", Representation: "json"})
		}, false},
		"the clock was wrong by years": {user, func(_ *Cache, v *view) {
			v.touch(time.Unix(0, 0))
		}, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := openCache(t, t.TempDir(), newUpstream())
			v := c.views.acquire(podsKey(test.user))
			fillJSON(t, v, "100", podJSON("a", "50"))
			v.release()
			c.views.sweep()
			v.unused = unusedFor // sweeps later
			test.do(c, v)
			c.views.sweep()
			if got := keptViews(c)[identity.Readable(test.user)]; got != test.stays {
				t.Errorf("it is kept: %t, want %t", got, test.stays)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// fillJSON is fill for a view of JSON.
func fillJSON(t *testing.T, v *view, version string, pods ...string) {
	t.Helper()
	st := v.newStage("", true)
	defer st.end()
	d := tee.NewDecoder(v.repr, respond(200, ""), st)
	d.Write([]byte(podsJSON(version, pods...))) //nolint:errcheck // finish says it
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	st.commit(version)
}

// Nobody reads on a device that is switched off, and little on one that has just
// booted without the cloud.
func TestADeviceThatWasOffForLongHasItsCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), t.TempDir()
		u.shows("100", podJSON("a", "50"))
		c := openCache(t, dir, u)
		stop := runCache(t, c)
		ask(as(t.Context(), "coredns"), t, c, "GET", urlPods)
		stop()
		u.goAway()
		time.Sleep(365 * 24 * time.Hour)
		c = openCache(t, dir, u)
		v := c.views.all()[0]
		v.seenUsed, v.unused = v.used.Load(), unusedFor
		runCache(t, c)
		time.Sleep(time.Hour)
		if got, want := ask(as(t.Context(), "coredns"), t, c, "GET", urlPods), "100: a=50"; got != want {
			t.Errorf("offline, an hour after the boot: %q, want %q", got, want)
		}
		u.comeBack()
		time.Sleep(3 * records.SweepEvery)
		if got, want := ask(as(t.Context(), "coredns"), t, c, "GET", urlPods), "100: a=50"; got != want {
			t.Errorf("online again: %q, want %q", got, want)
		}
	})
}

// A view is found empty, filled, let go of, and only then removed.
func TestAViewThatWasJustFilledStays(t *testing.T) {
	c := openCache(t, t.TempDir(), newUpstream())
	v := c.views.acquire(podsKey(query.NodeUser))
	fillJSON(t, v, "100", podJSON("a", "50"))
	v.release()
	c.views.remove(v)
	if c.views.find(podsKey(query.NodeUser)) != v {
		t.Error("what a client has just read is gone")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
