package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/cache/store"
)

// Run with -race.
func TestConcurrentReadersWritersAndRewrites(t *testing.T) {
	const steps = 40
	s := mustOpen(t, t.TempDir(), store.Options{})
	fill(t, s, 1, 1)
	all, ctx := errgroup.WithContext(t.Context())
	for view := range testViews {
		all.Go(func() error {
			for v := 1; v < steps; v++ {
				if err := s.Commit(store.Batch{Changes: []store.Change{step(view, v)}}); err != nil {
					return err
				}
			}
			return nil
		})
		for range 2 {
			all.Go(func() error {
				for last := 0; last < steps && ctx.Err() == nil; {
					version, err := verify(s, view)
					if err != nil || version < last {
						return errors.Join(err, errWrong)
					}
					last = version
				}
				return nil
			})
		}
	}
	all.Go(func() error { return errors.Join(s.Rewrite(), s.Check(), s.Rewrite()) })
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, steps)
}

func TestTheLogIsWrittenAnewIfAnythingChanged(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{RewriteEvery: time.Hour})
		fill(t, s, 3, 3)
		done := make(chan error)
		go func() { done <- s.Run(t.Context()) }()
		file := func() os.FileInfo {
			synctest.Wait()
			info, err := os.Stat(filepath.Join(dir, "cache.log"))
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		first := file()
		time.Sleep(30 * time.Minute)
		if !os.SameFile(file(), first) {
			t.Fatal("the log was written anew after half an hour")
		}
		time.Sleep(time.Hour)
		second := file()
		if os.SameFile(second, first) {
			t.Fatal("the log was not written anew after an hour")
		}
		time.Sleep(2 * time.Hour)
		if !os.SameFile(file(), second) {
			t.Fatal("the log was written anew without a change")
		}
		mustCommit(t, s, step(0, 3))
		time.Sleep(time.Hour)
		if os.SameFile(file(), second) {
			t.Fatal("the log was not written anew after a change")
		}
		s.Close()
		if err := s.Commit(store.Batch{}); !errors.Is(err, store.ErrClosed) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if err := <-done; !errors.Is(err, store.ErrClosed) {
			t.Fatalf("Run has ended with %v", err)
		}
	})
}
