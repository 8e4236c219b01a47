package cache

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/view"
)

// openFile reports whether the cache's file is open.
func openFile(c *Cache) bool {
	s, _ := c.disk.Now()
	_, err := s.Stats()
	return err == nil
}

func TestAFileThatCanBeOpenedLateIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		u.shows("100", podJSON("a", "50"))
		c := openCache(t, dir, u)
		stop := runCache(t, c)
		coredns := as(t.Context(), "coredns")
		ask(coredns, t, c, "GET", urlPods)
		get(t, c, urlPods)
		stop()
		u.goAway()

		// The disk is mounted after the hub has begun.
		away := dir + ".away"
		if err := errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		c = openCache(t, dir, u)
		stop = runCache(t, c)
		if got := get(t, c, urlPods); got != view.ErrNeverRead.Error() {
			t.Errorf("without the disk: %q", got)
		}
		synctest.Wait() // it was tried to open the file
		if err := errors.Join(os.Remove(dir), os.Rename(away, dir)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(disk.LastReopen)
		for _, when := range []string{"after it was mounted", "after a restart"} {
			if got, want := get(t, c, urlPods), "100: a=50"; got != want {
				t.Errorf("%s, the node reads %q, want %q", when, got, want)
			}
			if got, want := ask(coredns, t, c, "GET", urlPods), "100: a=50"; got != want {
				t.Errorf("%s, a pod reads %q, want %q", when, got, want)
			}
			stop()
			c = openCache(t, dir, u)
			stop = runCache(t, c)
		}
	})
}

func TestAStoreFileDoesNotReplaceMemoryDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		if err := os.WriteFile(dir, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		u.shows("100", podJSON("a", "50"))
		c := startIn(t, dir, u)
		get(t, c, urlPods)
		u.goAway()
		time.Sleep(time.Second)
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		expect(t, c, "offline", urlPods, "100: a=50")
		u.comeBack()
		time.Sleep(2 * disk.LastReopen)
		if !openFile(c) {
			t.Error("the file is not opened, though the cloud is back")
		}
		get(t, c, urlPods)
		u.goAway()
		expect(t, c, "offline again", urlPods, "100: a=50")
	})
}

func TestKnownTokensSurviveANewStoreFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), t.TempDir()
		u.shows("100", podJSON("a", "50"))
		c := startCache(t, u)
		coredns := as(t.Context(), "coredns")
		ask(coredns, t, c, "GET", urlPods)
		time.Sleep(5 * time.Second)

		// An empty file takes the place of one that was damaged.
		s, err := store.Open(dir, store.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		old, _ := c.disk.Now()
		c.disk.Use(s)
		who, _ := c.callerOf(newRequest(coredns, "GET", urlPods))
		if err := c.tokens.Offline(who.token, who.user); err != nil {
			t.Errorf("in memory: %v", err)
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		_, writer := c.disk.Now()
		if err := writer.Run(stopped); err != nil { // what is pending
			t.Fatal(err)
		}
		again := identity.New(identity.Options{Table: c.disk, Now: time.Now})
		if err := again.Load(c.tokens.Salt()); err != nil || again.User(who.token) != who.user {
			t.Errorf("in the new file it is the token of %q, %v", again.User(who.token), err)
		}
		c.disk.Use(old)
	})
}
