package store_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// start runs a store in a folder for some time, and calls change after each minute. It returns the
// number of snapshots.
func start(t *testing.T, dir string, lives time.Duration, change func(*store.Store)) (taken int) {
	t.Helper()
	s := mustOpen(t, dir, store.Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	last := snapshotTime(t, dir)
	for began := time.Now(); time.Since(began) < lives; {
		time.Sleep(time.Second)
		synctest.Wait()
		if now := snapshotTime(t, dir); !now.Equal(last) {
			taken++
			setSnapshotTime(t, dir, time.Now()) // the file system has another clock than the bubble
			last = snapshotTime(t, dir)
		}
		if time.Since(began)%time.Minute == 0 {
			change(s)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return taken
}

func setSnapshotTime(t *testing.T, dir string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(filepath.Join(dir, "cache.snapshot.db"), at, at); err != nil {
		t.Fatal(err)
	}
}

func nothing(*store.Store) {}

// A hub that always restarts within five minutes still has a snapshot, and writes no more of them
// than one that keeps running.
func TestAHubThatRestartsOftenHasASnapshot(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{})
		fill(t, s, 3, 3)
		s.Close()
		if n := start(t, dir, 2*time.Minute, nothing); n != 1 {
			t.Fatalf("%d snapshots were taken in the first two minutes, want one", n)
		}
		n, version := 0, 3
		for range 20 * 20 { // 20 hours
			n += start(t, dir, 3*time.Minute, func(s *store.Store) { mustCommit(t, s, step(0, version)); version++ })
		}
		if n != 3 {
			t.Errorf("%d snapshots were taken in 20 hours of restarts, want one in six hours", n)
		}
	})
}

// If the snapshot's time is wrong, at most one additional snapshot is taken.
func TestSnapshotsWhenTheClockIsWrong(t *testing.T) {
	for name, tt := range map[string]struct {
		age   time.Duration
		taken int // within two minutes of a start
	}{
		"from 1970, where the clock was not set":  {30 * 365 * 24 * time.Hour, 1},
		"from a future that is far away":          {-20 * 365 * 24 * time.Hour, 1},
		"from a minute ahead, after a reboot":     {-time.Minute, 0},
		"older than it may be":                    {7 * time.Hour, 1},
		"as young as it may be":                   {5 * time.Hour, 0},
		"written by the hub a moment before this": {time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := mustOpen(t, dir, store.Options{})
				fill(t, s, 3, 3)
				s.Close()
				start(t, dir, time.Minute, nothing)
				setSnapshotTime(t, dir, time.Now().Add(-tt.age))
				if n := start(t, dir, 2*time.Minute, nothing); n != tt.taken {
					t.Errorf("%d snapshots were taken, want %d", n, tt.taken)
				}
				if n := start(t, dir, 2*time.Minute, nothing); n != 0 {
					t.Errorf("%d snapshots were taken after the next start", n)
				}
			})
		})
	}
}

// A hub that has read nothing yet writes no snapshot: it would count as recent when the node has
// read what matters.
func TestNoSnapshotIsTakenOfAnEmptyStore(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		if n := start(t, dir, 4*time.Minute, nothing); n != 0 {
			t.Errorf("%d snapshots were taken of an empty store", n)
		}
	})
}
