package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// smallDisk mounts a file system of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	return mountDisk(t, "4m")
}

// mountDisk mounts a file system of a size.
func mountDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: a full disk is tested on a tmpfs, and only root may mount one")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
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

// useFiles leaves n files that this process can open, until the returned function is called.
func useFiles(t *testing.T, n int) (free func()) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = 64
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var used []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		used = append(used, f)
	}
	for range n {
		used[len(used)-1].Close()
		used = used[:len(used)-1]
	}
	free = sync.OnceFunc(func() {
		for _, f := range used {
			f.Close()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(free)
	return free
}

// Until the folder is synced, a power cut may give its name back to the log before, without what was committed since.
func TestNothingIsCommittedUntilTheNameOfTheLogIsOnDisk(t *testing.T) {
	for name, restarts := range map[string]bool{"the folder could not be synced": false, "the hub was killed before that": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, store.Options{})
			fill(t, s, 3, 3)
			before := statMain(t, dir)
			free := useFiles(t, 2) // enough for the new files, and none to open the folder with
			if err := s.Rewrite(); !errors.Is(err, syscall.EMFILE) || os.SameFile(before, statMain(t, dir)) {
				t.Fatalf("got error %v; the log was to be renamed, and the folder not to be synced", err)
			}
			if restarts {
				free()
				s.Close()
				s = mustOpen(t, dir, store.Options{})
			}
			freeRest := useFiles(t, 0)
			err := s.Commit(store.Batch{Changes: []store.Change{step(0, 3)}})
			freeRest()
			free()
			if !errors.Is(err, syscall.EMFILE) {
				t.Errorf("a commit while the folder cannot be synced: %v", err)
			}
			mustHold(t, s, 3)
			mustCommit(t, s, step(0, 3), step(1, 3), step(2, 3))
			mustHold(t, s, 4)
		})
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

// The hub tries again when there is space, and must know then that there was more.
func TestALogThatWasMovedAsideOnAFullDiskIsALoss(t *testing.T) {
	disk := smallDisk(t)
	dir := filepath.Join(disk, "cache")
	mustOpen(t, dir, store.Options{}).Close()
	if err := os.Remove(filepath.Join(dir, "cache.index")); err != nil {
		t.Fatal(err)
	}
	writeMain(t, dir, []byte("no header"))
	free := fillDisk(t, disk)
	if _, err := store.Open(dir, store.Options{}); !errors.Is(err, store.ErrNoSpace) {
		t.Fatalf("got error %v from a full disk", err)
	}
	free()
	s := mustOpen(t, dir, store.Options{})
	t.Cleanup(func() { s.Close() }) // before the disk is unmounted
	if !errors.Is(s.Recovery().Cause, store.ErrCorrupt) || s.CheckTable("records") == nil {
		t.Errorf("got recovery %v", s.Recovery())
	}
}

// Each attempt fills the disk, for all programs of the machine, and keeps commits waiting.
func TestAFailedRewriteIsNotRepeatedAtEachCommit(t *testing.T) {
	disk := mountDisk(t, "40m")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := mustOpen(t, filepath.Join(disk, "cache"), store.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		fill(t, s, 3, 3)
		for v := range 3 { // 24 MiB, of which 8 are needed
			c := store.Change{ID: viewID(9), Op: store.Replace, Header: testHeader(v)}
			for i := range 8 {
				c.Put = append(c.Put, store.NewObject(fmt.Sprint("big", i), fmt.Sprint(v), bytes.Repeat([]byte{byte(v)}, 1<<20)))
			}
			mustCommit(t, s, c)
		}
		mustCommit(t, s, store.Change{ID: viewID(8), Op: store.Replace, Header: testHeader(1), Put: []store.Object{store.NewObject("garbage", "1", make([]byte, 1<<20))}})
		mustCommit(t, s, store.Change{ID: viewID(8), Op: store.Drop})
		ballast := filepath.Join(disk, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 10<<20), 0o600); err != nil { // 5 MiB are free
			t.Fatal(err)
		}
		stop := runStore(t, s)
		mustHaveFailed := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := strings.Count(log.String(), "could not be written anew"); got != want {
				t.Errorf("it was tried %d times, want %d", got, want)
			}
		}
		for v := range 10 {
			mustCommit(t, s, step(0, 3+v))
			time.Sleep(time.Second)
		}
		mustHaveFailed(1)
		time.Sleep(10 * time.Minute)
		mustCommit(t, s, step(0, 13))
		mustHaveFailed(2)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		time.Sleep(11 * time.Minute)
		mustCommit(t, s, step(0, 14))
		mustHaveFailed(2)
		if n := statMain(t, filepath.Join(disk, "cache")).Size(); n > 9<<20 {
			t.Errorf("there is space again, and the log has %d bytes", n)
		}
		stop()
	})
}
