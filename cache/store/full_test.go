package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/edgehub-io/edgehub/cache/store"
)

// smallDisk mounts a file system of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a full disk is tested on a tmpfs, and only root may mount one")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("NOT RUN: a full disk is tested on a tmpfs, and here none can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk leaves no byte free until the returned function is called.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// Invariant 14: a full disk changes nothing, and the store works again when there is space.
func TestFullDisk(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "cache")
	s := mustOpen(t, dir, store.Options{})
	t.Cleanup(func() { s.Close() }) // before the disk is unmounted
	fill(t, s, 3, 5)
	big := store.Change{ID: viewID(9), Op: store.Replace, Header: testHeader(1), Put: []store.Object{
		store.NewObject("big", "1", make([]byte, 1<<20)),
	}}

	free := fillDisk(t, disk)
	for range 3 {
		err := s.Commit(store.Batch{Changes: []store.Change{step(0, 5), big}})
		if !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("got error %v from a full disk", err)
		}
		mustHold(t, s, 5)
	}
	if err := s.Rewrite(); !errors.Is(err, store.ErrNoSpace) {
		t.Fatalf("got error %v of a full disk when the log is written anew", err)
	}
	s.Close()
	s = mustOpen(t, dir, store.Options{}) // a restart while the disk is full
	if s.Recovery().Cause != nil {
		t.Fatalf("a full disk counts as damage: %v", s.Recovery().Cause)
	}
	mustHold(t, s, 5)

	err := s.Commit(store.Batch{Changes: []store.Change{big}})
	if !errors.Is(err, store.ErrNoSpace) {
		t.Fatalf("got error %v from a full disk", err)
	}
	free()
	mustCommit(t, s, step(0, 5), step(1, 5), step(2, 5), big)
	mustHold(t, s, 6)
	s.Close()
	s = mustOpen(t, dir, store.Options{})
	mustHold(t, s, 6)
}
