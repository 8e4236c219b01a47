package cache

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

// keptViews are the users whose views of all pods are kept.
func keptViews(c *Cache) map[string]bool {
	kept := map[string]bool{}
	for _, s := range c.State() {
		kept[s.User] = true
	}
	return kept
}

// Views of a device that is switched off are not read, and few are read after it has booted
// offline.
func TestADeviceThatWasOffForLongKeepsItsCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), t.TempDir()
		u.shows("100", podJSON("a", "50"))
		c, stop := runIn(t, dir, u)
		ask(as(t.Context(), "coredns"), t, c, "GET", urlPods)
		stop()
		u.goAway()
		time.Sleep(365 * 24 * time.Hour)
		c = startIn(t, dir, u)
		time.Sleep(time.Hour)
		if got, want := ask(as(t.Context(), "coredns"), t, c, "GET", urlPods), "100: a=50"; got != want {
			t.Errorf("offline, an hour after the boot: %q, want %q", got, want)
		}
		u.comeBack()
		time.Sleep(3 * view.SweepEvery)
		if got, want := ask(as(t.Context(), "coredns"), t, c, "GET", urlPods), "100: a=50"; got != want {
			t.Errorf("online again: %q, want %q", got, want)
		}
	})
}
