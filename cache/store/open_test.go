package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

func TestEncryptionKeys(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	for _, tt := range []struct {
		name         string
		wrote, opens []byte
		want         error
	}{
		{"the same key", key, key, nil},
		{"another key", key, other, store.ErrKey},
		{"no key", key, nil, store.ErrKey},
		{"a key for a file without", nil, key, store.ErrKey},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, store.Options{Key: tt.wrote})
			fill(t, s, 3, 5)
			s.Close()
			before := readMain(t, dir)
			for range 3 { // also when it is tried again and again
				s, err := store.Open(dir, store.Options{Key: tt.opens})
				if !errors.Is(err, tt.want) {
					t.Fatalf("got error %v, want %v", err, tt.want)
				}
				if err == nil {
					s.Close()
				}
			}
			if !bytes.Equal(before, readMain(t, dir)) {
				t.Fatal("the file was changed")
			}
			mustHold(t, mustOpen(t, dir, store.Options{Key: tt.wrote}), 5)
		})
	}
	if _, err := store.Open(t.TempDir(), store.Options{Key: []byte("short")}); err == nil {
		t.Fatal("a key of 5 bytes was taken")
	}
}

func TestEncryptedFileContainsNoNames(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{Key: make([]byte, 32)})
	fill(t, s, 3, 5)
	if err := s.Commit(store.Batch{Pairs: []store.Pair{{Table: "tokens", Key: "k", Value: []byte("a secret token")}}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	index, err := os.ReadFile(filepath.Join(dir, "cache.index"))
	if err != nil {
		t.Fatal(err)
	}
	file := append(readMain(t, dir), index...)
	for _, secret := range []string{"default/", "pod-", testScope, "a secret token", string(objectBytes(objectName(1), 1)[:8])} {
		if bytes.Contains(file, []byte(secret)) {
			t.Errorf("%q can be read in the file", secret)
		}
	}
}

func TestOnlyTheOwnerCanReadTheFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "cache")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	if err := s.Rewrite(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 3 {
		t.Fatalf("got %v: %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s has mode %v (%v)", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v (%v)", info.Mode(), err)
	}
}

// Who does not own the folder removes no file: the owner may be writing the log anew. If it is killed then, its next
// start has no use for these files.
func TestOneOwnerAtATime(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	files := []string{filepath.Join(dir, "cache.new.log"), filepath.Join(dir, "cache.new.index")}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("a part of a log"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Open(dir, store.Options{LockTimeout: time.Millisecond}); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("got error %v", err)
	}
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	mustHold(t, s, 3)
	s.Close()
	s = mustOpen(t, dir, store.Options{})
	mustHold(t, s, 3)
	heal(t, s)
	mustHold(t, s, 3)
}

func TestSpaceOfDroppedViewsIsFreed(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{})
		fill(t, s, 3, 3)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		big := store.Change{ID: viewID(99), Op: store.Replace, Header: testHeader(1)}
		for i := range 3000 {
			big.Put = append(big.Put, store.NewObject(fmt.Sprint(i), "1", make([]byte, 4000)))
		}
		for range 6 {
			mustCommit(t, s, big)
			mustCommit(t, s, store.Change{ID: big.ID, Op: store.Drop})
			synctest.Wait()
			if info, err := os.Stat(filepath.Join(dir, "cache.log")); err != nil || info.Size() > 2<<20 {
				t.Fatalf("the log has %d bytes after its largest view was dropped (%v)", info.Size(), err)
			}
		}
		if stats, err := s.Stats(); err != nil || stats.FileBytes > 2<<20 {
			t.Fatalf("got %+v, %v", stats, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		mustHold(t, s, 3)
	})
}

// remount makes a disk read-only, or with no flags one that can be written.
func remount(t *testing.T, disk string, flags uintptr) {
	t.Helper()
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// A disk that is read-only after a reboot, or becomes so, serves what is on it.
func TestReadOnlyDisk(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "cache")
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 5)
	if s.IsReadOnly() {
		t.Fatal("it cannot be written")
	}
	s.Close()
	remount(t, disk, syscall.MS_RDONLY)
	s = mustOpen(t, dir, store.Options{})
	t.Cleanup(func() { s.Close() }) // before the disk is unmounted
	if s.Recovery().Cause != nil || !s.IsReadOnly() {
		t.Fatalf("got recovery %v, read-only %v", s.Recovery(), s.IsReadOnly())
	}
	for range 2 {
		mustHold(t, s, 5)
		if err := s.Commit(store.Batch{Changes: []store.Change{step(0, 5)}}); !errors.Is(err, store.ErrReadOnly) {
			t.Fatalf("a commit: %v", err)
		}
		if err := s.Rewrite(); err != nil {
			t.Fatal(err)
		}
	}
	remount(t, disk, 0)
	mustCommit(t, s, step(0, 5), step(1, 5), step(2, 5))
	if s.IsReadOnly() {
		t.Fatal("it cannot be written")
	}
	mustHold(t, s, 6)
	s.Close()
	s = mustOpen(t, dir, store.Options{})
	mustHold(t, s, 6)
}

// Of a commit that a power cut has cut short nothing stays behind the next, also if it cannot be cut at the start.
func TestATornCommitIsCutWhenTheDiskCanBeWrittenAgain(t *testing.T) {
	const torn = "of a commit that was cut short"
	disk := smallDisk(t)
	dir := filepath.Join(disk, "cache")
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 5)
	index, err := os.ReadFile(filepath.Join(dir, "cache.index"))
	if err != nil {
		t.Fatal(err)
	}
	before := len(readMain(t, dir))
	mustCommit(t, s, store.Change{ID: viewID(9), Op: store.Replace, Header: testHeader(1), Put: []store.Object{
		store.NewObject("big", "1", bytes.Repeat([]byte(torn), 10_000)),
	}})
	s.Close()
	log := readMain(t, dir)
	clear(log[before+1000 : before+2000])
	writeMain(t, dir, log)
	if err := os.WriteFile(filepath.Join(dir, "cache.index"), index, 0o600); err != nil {
		t.Fatal(err)
	}
	remount(t, disk, syscall.MS_RDONLY)
	s = mustOpen(t, dir, store.Options{})
	t.Cleanup(func() { s.Close() }) // before the disk is unmounted
	mustHold(t, s, 5)
	remount(t, disk, 0)
	mustCommit(t, s, step(0, 5), step(1, 5), step(2, 5))
	if got := filesWith(t, torn, dir); got != "" {
		t.Errorf("%q have it", got)
	}
	mustHold(t, s, 6)
}
