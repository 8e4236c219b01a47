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
func TestConcurrentReadersWritersAndSnapshots(t *testing.T) {
	const steps = 40
	s := mustOpen(t, t.TempDir(), store.Options{MaxHeld: 16 << 10}) // so that readers do lose what they need
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
					if errors.Is(err, store.ErrChanged) {
						continue
					}
					if err != nil || version < last {
						return errors.Join(err, errWrong)
					}
					last = version
				}
				return nil
			})
		}
	}
	all.Go(func() error { return errors.Join(s.Snapshot(), s.Check(), s.Snapshot()) })
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, steps)
}

func TestSnapshotsAreTakenPeriodicallyIfAnythingChanged(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{SnapshotEvery: time.Hour})
		fill(t, s, 3, 3)
		done := make(chan error)
		go func() { done <- s.Run(t.Context()) }()

		taken := func() time.Time {
			synctest.Wait()
			return snapshotTime(t, dir)
		}
		if !taken().IsZero() {
			t.Fatal("a snapshot was taken at once")
		}
		time.Sleep(6 * time.Minute)
		first := taken()
		if first.IsZero() {
			t.Fatal("no snapshot was taken after 6 minutes")
		}
		time.Sleep(2 * time.Hour)
		if !taken().Equal(first) {
			t.Fatal("a snapshot was taken of nothing new")
		}
		mustCommit(t, s, step(0, 3))
		time.Sleep(time.Hour)
		if taken().Equal(first) {
			t.Fatal("no snapshot was taken of what is new")
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

// snapshotTime returns when the snapshot was written, or the zero time.
func snapshotTime(t *testing.T, dir string) time.Time {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "cache.snapshot.db"))
	if errors.Is(err, os.ErrNotExist) {
		return time.Time{}
	}
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime()
}
