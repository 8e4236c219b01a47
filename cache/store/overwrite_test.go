package store_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store"
)

// filesWith returns the files in folders that contain text.
func filesWith(t *testing.T, text string, folders ...string) string {
	t.Helper()
	var found []string
	for _, dir := range folders {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, []byte(text)) {
				found = append(found, e.Name())
			}
		}
	}
	return strings.Join(found, " ")
}

// What was removed stays in no file, nor in what the file system had for a file that was replaced.
func TestWhatWasRemovedIsOverwrittenWithinHours(t *testing.T) {
	const secret = "a Secret that was removed"
	dir, replaced := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{})
		fill(t, s, 3, 3)
		view := store.Change{ID: viewID(99), Op: store.Replace, Header: testHeader(1)}
		for name, size := range map[string]int{"small": 1, "large": 1000} {
			view.Put = append(view.Put, store.NewObject(name, "1", bytes.Repeat([]byte(secret), size)))
		}
		mustCommit(t, s, view)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := filesWith(t, secret, dir); got != "cache.db cache.snapshot.db" {
			t.Fatalf("before it is removed, %q have it", got)
		}
		if err := os.Link(filepath.Join(dir, "cache.snapshot.db"), filepath.Join(replaced, "earlier snapshot")); err != nil {
			t.Fatal(err)
		}
		reader := s.NewReader(view.ID, testScope) // keeps the bytes for a while
		mustCommit(t, s, store.Change{ID: view.ID, Op: store.Drop})
		reader.Close()
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if got := filesWith(t, secret, dir, replaced); got != "" {
			t.Errorf("six hours after it was removed, %q have it", got)
		}
		mustHold(t, s, 3)
		if stop(); <-done != nil {
			t.Error("Run ended with an error")
		}
	})
}

// Files that a damaged store or a compaction has left do not keep what is removed later, either.
func TestFilesOfEarlierRunsAreOverwritten(t *testing.T) {
	const secret = "a Secret of an earlier run"
	for name, tt := range map[string]struct {
		leave func(t *testing.T, dir string) // what the earlier run has left
		age   time.Duration
		want  string
	}{
		"a compaction":                      {func(*testing.T, string) {}, 0, ""},
		"damage, a day ago":                 {leaveDamage, 24 * time.Hour, "cache.damaged.db"},
		"damage, eight days ago":            {leaveDamage, 8 * 24 * time.Hour, ""},
		"damage, by a clock that was ahead": {leaveDamage, -time.Hour, "cache.damaged.db"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, replaced := t.TempDir(), t.TempDir()
			s := mustOpen(t, dir, store.Options{})
			fill(t, s, 3, 3)
			big := store.Change{ID: viewID(99), Op: store.Replace, Header: testHeader(1)}
			big.Put = []store.Object{store.NewObject("big", "1", bytes.Repeat([]byte(secret), 200_000))}
			mustCommit(t, s, big)
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
			mustCommit(t, s, store.Change{ID: big.ID, Op: store.Drop})
			s.Close()
			tt.leave(t, dir)
			if err := os.Link(filepath.Join(dir, "cache.db"), filepath.Join(replaced, "main")); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, dir, store.Options{})
			mustCommit(t, s, store.Change{ID: big.ID, Op: store.Drop})
			damaged := filepath.Join(dir, "cache.damaged.db")
			if then := time.Now().Add(-tt.age); os.Chtimes(damaged, then, then) == nil == (name == "a compaction") {
				t.Fatal("it has not left what it should")
			}
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want != "" {
				want += " main"
			}
			if got := filesWith(t, secret, dir, replaced); got != want {
				t.Errorf("%q have it, want %q", got, want)
			}
			mustHold(t, s, 3)
		})
	}
}

func leaveDamage(t *testing.T, dir string) { writeState(t, dir, "damaged 0\n") }

// A transaction reads the state with which it has begun, though its pages are free since.
func TestPagesThatAreReadAreNotOverwritten(t *testing.T) {
	s := mustOpen(t, t.TempDir(), store.Options{})
	fill(t, s, 3, 3)
	overwritten := make(chan error, 1)
	err := s.View(func(tx *bolt.Tx) error {
		key, value := tx.Bucket([]byte("objects")).Cursor().First()
		before := append(bytes.Clone(key), value...)
		for v := 3; v < 9; v++ {
			mustCommit(t, s, step(0, v), step(1, v), step(2, v))
		}
		go func() { overwritten <- s.Overwrite() }()
		for !s.WaitsForReaders() {
			if len(overwritten) > 0 {
				t.Error("pages were overwritten while a transaction may read them")
				break
			}
			time.Sleep(time.Millisecond)
		}
		key, value = tx.Bucket([]byte("objects")).Cursor().First()
		if after := append(bytes.Clone(key), value...); !bytes.Equal(before, after) {
			t.Errorf("the transaction reads %q, and before %q", after, before)
		}
		return nil
	})
	if err = errors.Join(err, <-overwritten); err != nil {
		t.Fatal(err)
	}
	mustHold(t, s, 9)
}
