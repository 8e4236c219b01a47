package cache

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/view"
)

// lastReopen is the longest pause of the log between attempts to open its file.
const lastReopen = time.Minute

// isOpen reports whether the cache's file is open.
func isOpen(c *Cache) bool {
	return !errors.Is(c.disk.Trouble(), wal.ErrNotOpen)
}

// startWithoutDisk returns a cache whose file, of pods at version 100 for the node and two pods, and of an event that
// was not sent, is mounted by mount. restart restarts it.
func startWithoutDisk(t *testing.T, u *upstream) (c *Cache, mount func(), restart func() *Cache) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
	c = openCache(t, dir, u)
	stop := runCache(t, c)
	get(t, c, urlPods)
	for _, user := range []string{"coredns", "other"} {
		ask(as(t.Context(), user), t, c, http.MethodGet, urlPods)
	}
	u.goAway()
	postEvent(t.Context(), t, c, "before", "")
	stop()
	time.Sleep(time.Second)
	u.comeBack()
	away := dir + ".away"
	if err := errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	c, stop = runIn(t, dir, u)
	synctest.Wait() // it was tried to open the file
	mount = func() {
		if err := errors.Join(os.Remove(dir), os.Rename(away, dir)); err != nil {
			t.Fatal(err)
		}
	}
	return c, mount, func() *Cache {
		stop()
		c := openCache(t, dir, u)
		stop = runCache(t, c)
		return c
	}
}

func TestAFileThatCanBeOpenedLateIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c, mount, restart := startWithoutDisk(t, u)
		u.goAway()
		if got := get(t, c, urlPods); got != view.ErrNeverRead.Error() {
			t.Errorf("without the disk: %q", got)
		}
		postEvent(t.Context(), t, c, "e", "")
		mount()
		time.Sleep(lastReopen)
		for _, when := range []string{"after it was mounted", "after a restart"} {
			for _, user := range []string{"coredns", "other"} {
				if got, want := ask(as(t.Context(), user), t, c, http.MethodGet, urlPods), "100: a=50 b=51"; got != want {
					t.Errorf("%s, a pod reads %q, want %q", when, got, want)
				}
			}
			expect(t, c, when, urlPods, "100: a=50 b=51")
			expect(t, c, when, urlPodA, "a=50")
			if n := c.writes.events.Len(); n != 2 {
				t.Errorf("%s, %d events wait, want 2", when, n)
			}
			c = restart()
		}
	})
}

// Clients have read a newer object, but no list, when the file can be opened.
func TestAFileThatCanBeOpenedLateDoesNotReplaceANewerObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c, mount, restart := startWithoutDisk(t, u)
		u.onText("get", http.StatusOK, podJSON("a", "150"))
		expect(t, c, "online", urlPodA, "a=150")
		u.goAway()
		mount()
		time.Sleep(2 * lastReopen)
		expect(t, c, "offline", urlPods, "100: a=50 b=51")
		for range 2 {
			expect(t, c, "offline", urlPodA, "a=150")
			expect(t, c, "offline", urlPodB, "b=51")
			c = restart()
		}
	})
}

// A client has got a newer event, and the list has failed, when the file can be opened.
func TestAFileThatCanBeOpenedLateShowsNothingOlderThanAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c, mount, _ := startWithoutDisk(t, u)
		u.onText("list", http.StatusInternalServerError, "{}")
		asksOnce(t, u, c, urlWatch+"&resourceVersion=120")
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=120")
		send(t, <-u.feeds, podEvent("MODIFIED", "a", "150"))
		synctest.Wait()
		w.stop()
		<-w.done
		u.goAway()
		mount()
		time.Sleep(2 * lastReopen)
		if !isOpen(c) {
			t.Error("the file is not opened")
		}
		expect(t, c, "offline", urlPods, view.ErrBehind.Error())
		u.shows("200", podJSON("a", "150"))
		u.comeBack()
		get(t, c, urlPods)
		u.goAway()
		expect(t, c, "when it was read again", urlPods, "200: a=150")
	})
}

// Clients have read lists when the file can be opened. Memory is served during the outage, and is what the file has
// after it: nothing older comes back, not after a restart either.
func TestAFileThatCanBeOpenedLateBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c, mount, restart := startWithoutDisk(t, u)
		u.shows("200", podJSON("a", "150"))
		expect(t, c, "online", urlPods, "200: a=150")
		coredns, other := as(t.Context(), "coredns"), as(t.Context(), "other")
		ask(coredns, t, c, http.MethodGet, urlPods)
		w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=200")
		send(t, <-u.feeds, podEvent("MODIFIED", "a", "210"))
		synctest.Wait()
		w.stop()
		<-w.done
		u.goAway()
		postEvent(t.Context(), t, c, "e", "")
		mount()
		time.Sleep(2 * lastReopen)
		if !isOpen(c) {
			t.Error("the file is not opened")
		}
		for _, when := range []string{"with the file", "after a restart", "after another restart"} {
			expect(t, c, when, urlPods, "210: a=210")
			expect(t, c, when, urlPodA, "a=210")
			expect(t, c, when, urlPodB, "404")
			if got, want := ask(coredns, t, c, http.MethodGet, urlPods), "200: a=150"; got != want {
				t.Errorf("%s, a pod reads %q, want %q", when, got, want)
			}
			if got, want := ask(other, t, c, http.MethodGet, urlPods), identity.ErrUnknown.Error(); got != want {
				t.Errorf("%s, a pod that has read nothing since reads %q, want %q", when, got, want)
			}
			if n := c.writes.events.Len(); n != 2 { // one of them is the file's
				t.Errorf("%s, %d events wait, want 2", when, n)
			}
			c = restart()
		}
		u.shows("300", podJSON("a", "250"))
		u.comeBack()
		ask(other, t, c, http.MethodGet, urlPods)
		u.goAway()
		if got, want := ask(other, t, c, http.MethodGet, urlPods), "300: a=250"; got != want {
			t.Errorf("when it was read again: %q, want %q", got, want)
		}
	})
}

// The folder that is mounted late is empty: what was read stays.
func TestAnEmptyFileThatCanBeOpenedLateTakesWhatWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		u.onText("get", http.StatusOK, podJSON("a", "50"))
		c, stop := runIn(t, dir, u)
		expect(t, c, "online", urlPodA, "a=50")
		u.goAway()
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lastReopen)
		expect(t, c, "offline", urlPodA, "a=50")
		stop()
		expect(t, startIn(t, dir, u), "after a restart", urlPodA, "a=50")
	})
}
