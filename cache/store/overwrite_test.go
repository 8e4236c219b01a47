package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
			view.Put = append(view.Put, store.NewObject(secret+name, "1", bytes.Repeat([]byte(secret), size)))
		}
		mustCommit(t, s, view)
		stop := runStore(t, s)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := filesWith(t, secret, dir); got != "cache.index cache.log" {
			t.Fatalf("before it is removed, %q have it", got)
		}
		for _, name := range []string{"cache.index", "cache.log"} {
			if err := os.Link(filepath.Join(dir, name), filepath.Join(replaced, "earlier "+name)); err != nil {
				t.Fatal(err)
			}
		}
		mustCommit(t, s, store.Change{ID: view.ID, Op: store.Drop})
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if got := filesWith(t, secret, dir, replaced); got != "" {
			t.Errorf("six hours after it was removed, %q have it", got)
		}
		before := statMain(t, dir)
		time.Sleep(13 * time.Hour)
		synctest.Wait()
		if !os.SameFile(before, statMain(t, dir)) {
			t.Error("the log was written anew without a change")
		}
		mustHold(t, s, 3)
		stop()
	})
}

// The same, though somebody reads another view all the time.
func TestAReaderKeepsNoSecretThatWasRemoved(t *testing.T) {
	for name, ends := range map[string]bool{"and goes on": false, "and ends, and nothing is committed after that": true} {
		t.Run(name, func(t *testing.T) {
			const secret = "a Secret that was removed"
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := mustOpen(t, dir, store.Options{})
				fill(t, s, 3, 3)
				mustCommit(t, s, store.Change{ID: viewID(99), Op: store.Replace, Header: testHeader(1), Put: []store.Object{store.NewObject("x", "1", []byte(secret))}})
				stop := runStore(t, s)
				time.Sleep(5*time.Hour + 30*time.Minute)
				r := s.NewReader(viewID(0), testScope)
				defer r.Close()
				mustCommit(t, s, store.Change{ID: viewID(99), Op: store.Drop})
				time.Sleep(time.Hour) // it was written anew meanwhile, with what the Reader might need
				synctest.Wait()
				if got := filesWith(t, secret, dir); got != "cache.log" {
					t.Errorf("an hour after it was removed, %q have it", got)
				}
				if ends {
					r.Close()
				}
				time.Sleep(6 * time.Hour)
				synctest.Wait()
				if got := filesWith(t, secret, dir); got != "" {
					t.Errorf("seven hours after it was removed, %q have it", got)
				}
				mustHold(t, s, 3)
				stop()
			})
		})
	}
}

// A client that does not read its answer must not fill the disk. Whoever comes too late gets an error, and never
// other bytes: what was removed last stays longest.
func TestAReaderKeepsABoundedNumberOfBytes(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	r := s.NewReader(viewID(9), testScope)
	defer r.Close()
	var removed []store.Object
	for v := range 5 {
		o := store.NewObject("big", fmt.Sprint(v+1), bytes.Repeat([]byte{byte(v)}, 14<<20))
		removed = append(removed, o)
		mustCommit(t, s, store.Change{ID: viewID(9), Op: store.Replace, Header: testHeader(v), Put: []store.Object{o}})
	}
	mustCommit(t, s, store.Change{ID: viewID(9), Op: store.Drop})
	if err := s.Rewrite(); err != nil {
		t.Fatal(err)
	}
	if n := statMain(t, dir).Size(); n > 64<<20 {
		t.Errorf("the log has %d MiB, of which none are needed", n>>20)
	}
	for i, o := range removed {
		got, err := readObject(s, testScope, o)
		if i == 0 && !errors.Is(err, store.ErrChanged) || i > 0 && (err != nil || !bytes.Equal(got, o.Bytes)) {
			t.Errorf("object %d: got %d bytes, and error %v", i, len(got), err)
		}
	}
	mustHold(t, s, 3)
}

// What wears the disk out is counted: commits, the log that is written anew, and the old one that is overwritten.
func TestEachByteThatIsWrittenIsCounted(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{})
		size := func() (n int64) {
			for _, name := range []string{"cache.index", "cache.log"} {
				info, err := os.Stat(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				n += info.Size()
			}
			return n
		}
		mustHave := func(want int64, what string) {
			t.Helper()
			if stats, err := s.Stats(); err != nil || stats.WrittenBytes != want {
				t.Errorf("%s: got %+v, %v; want %d written", what, stats, err, want)
			}
		}
		mustHave(size(), "a new store")
		fill(t, s, 3, 3)
		before := size()
		mustHave(before, "three commits")
		fill(t, s, 3, 3)
		mustHave(size(), "the same again")
		if n := size() - before; n > before/10 {
			t.Errorf("objects that are held already were written again: %d bytes, %d before", n, before)
		}
		mustCommit(t, s, store.Change{ID: viewID(0), Op: store.Drop})
		old := size()
		stop := runStore(t, s)
		time.Sleep(7 * time.Hour)
		synctest.Wait()
		mustHave(old+size()+old, "a log that was written anew")
		stop()
	})
}

// A hub that restarts more often than every six hours still removes what was removed.
func TestALogThatIsOldIsWrittenAnewSoonAfterTheStart(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{})
		fill(t, s, 3, 3)
		for restart := range 4 {
			mustCommit(t, s, step(0, 3+restart), step(1, 3+restart), step(2, 3+restart))
			s.Close()
			s = mustOpen(t, dir, store.Options{})
			before, stop := statMain(t, dir), runStore(t, s)
			time.Sleep(150 * time.Minute)
			synctest.Wait()
			if same := os.SameFile(before, statMain(t, dir)); same != (restart != 2) {
				t.Errorf("after %d restarts, every two and a half hours, the log is the same: %v", restart+1, same)
			}
			stop()
		}
		mustHold(t, s, 7)
	})
}

// Of many views that share small objects, or have long selectors and no members, the log has mostly lists of members
// or keys. They are needed.
func TestALogOfWhichAllIsNeededIsNotWrittenAnewAtEachCommit(t *testing.T) {
	var lists, selectors []store.Change
	name := strings.Repeat("a-long-name-", 20)
	for view := range 50 {
		c := store.Change{ID: viewID(view), Op: store.Replace, Header: testHeader(1)}
		for i := range 1000 {
			c.Put = append(c.Put, store.NewObject(fmt.Sprint(name, i), "1", []byte("small")))
		}
		lists = append(lists, c)
	}
	for i := range 3500 {
		h := testHeader(1)
		h.Key = bytes.Repeat([]byte("selector"), 512)
		selectors = append(selectors, store.Change{ID: id(fmt.Sprint(i)), Op: store.Replace, Header: h})
	}
	for name, changes := range map[string][]store.Change{"lists of members": lists, "long selectors": selectors} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := mustOpen(t, dir, store.Options{})
				mustCommit(t, s, changes...)
				stop := runStore(t, s)
				synctest.Wait()
				before, err := s.Stats()
				if err != nil || before.FileBytes < 10<<20 {
					t.Fatalf("got %+v, %v", before, err)
				}
				for version := range 5 {
					mustCommit(t, s, whole(99, 1+version))
					time.Sleep(time.Second)
					synctest.Wait()
				}
				after, err := s.Stats()
				if n := after.WrittenBytes - before.WrittenBytes; err != nil || n > 1<<20 {
					t.Errorf("five small commits wrote %d bytes, into files of %d (%v)", n, before.FileBytes, err)
				}
				stop()
			})
		})
	}
}

// The log is the new one from its renaming on, whatever goes wrong with the index.
func TestCommitsAreInTheLogThatHasItsName(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	index := filepath.Join(dir, "cache.index")
	if err := errors.Join(os.Remove(index), os.MkdirAll(filepath.Join(index, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewrite(); err == nil {
		t.Error("no error, though the index cannot be replaced")
	}
	mustCommit(t, s, step(0, 3), step(1, 3), step(2, 3))
	mustHold(t, s, 4)
	s.Close()
	if err := os.RemoveAll(index); err != nil {
		t.Fatal(err)
	}
	mustHold(t, mustOpen(t, dir, store.Options{}), 4)
}

// runStore runs a store until stop is called.
func runStore(t *testing.T, s *store.Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	return func() {
		if cancel(); <-done != nil {
			t.Error("Run ended with an error")
		}
	}
}

func statMain(t *testing.T, dir string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "cache.log"))
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// A log of which nothing can be read is left for a person to look at, and the file of an earlier version, which has used
// bbolt, for a hub that goes back to it: for a week.
func TestWhatIsNotReadIsLeftForAWeek(t *testing.T) {
	const ahead = -time.Hour // a clock was
	for name, tt := range map[string]struct {
		found, kept string
		cause       error
		age         time.Duration
		stays       bool
	}{
		"a log of a day ago":                     {"cache.log", "cache.damaged.log", store.ErrCorrupt, 24 * time.Hour, true},
		"a log of eight days ago":                {"cache.log", "cache.damaged.log", store.ErrCorrupt, 8 * 24 * time.Hour, false},
		"a log by a clock that was ahead":        {"cache.log", "cache.damaged.log", store.ErrCorrupt, ahead, true},
		"an earlier version's of six days ago":   {"cache.db", "cache.db", store.ErrFormat, 6 * 24 * time.Hour, true},
		"an earlier version's of eight days ago": {"cache.db", "cache.db", store.ErrFormat, 8 * 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			const text = "no header of a log"
			dir, other := t.TempDir(), t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, tt.found), bytes.Repeat([]byte(text), 100_000), 0o600); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, dir, store.Options{})
			if !errors.Is(s.Recovery().Cause, tt.cause) {
				t.Fatalf("got recovery %v", s.Recovery())
			}
			kept, then := filepath.Join(dir, tt.kept), time.Now().Add(-tt.age)
			if err := errors.Join(os.Link(kept, filepath.Join(other, "other")), os.Chtimes(kept, then, then)); err != nil {
				t.Fatal(err)
			}
			fill(t, s, 3, 3)
			if err := s.Rewrite(); err != nil {
				t.Fatal(err)
			}
			want := ""
			if tt.stays {
				want = tt.kept + " other"
			}
			if got := filesWith(t, text, dir, other); got != want {
				t.Errorf("%q have it, want %q", got, want)
			}
			s.Close()
			s = mustOpen(t, dir, store.Options{})
			if s.Recovery().Cause != nil {
				t.Errorf("the next start: %v", s.Recovery().Cause)
			}
			mustHold(t, s, 3)
		})
	}
}

// An index to which nothing can be added any more, as after a disk was read-only, has names all the same.
func TestAnIndexThatIsNotUsedAnyMoreIsOverwritten(t *testing.T) {
	const secret = "name-of-a-secret"
	disk := smallDisk(t)
	dir := filepath.Join(disk, "cache")
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 3)
	mustCommit(t, s, store.Change{ID: viewID(9), Op: store.Replace, Header: testHeader(1), Put: []store.Object{store.NewObject(secret, "1", []byte("x"))}})
	s.Close()
	remount(t, disk, syscall.MS_RDONLY)
	s = mustOpen(t, dir, store.Options{})
	t.Cleanup(func() { s.Close() }) // before the disk is unmounted
	remount(t, disk, 0)
	mustCommit(t, s, store.Change{ID: viewID(9), Op: store.Drop})
	old, err := os.Open(filepath.Join(dir, "cache.index"))
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := s.Rewrite(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(old)
	if got := filesWith(t, secret, dir); err != nil || got != "" || bytes.Contains(b, []byte(secret)) {
		t.Errorf("%q have it, and the old index: %v (%v)", got, bytes.Contains(b, []byte(secret)), err)
	}
	mustHold(t, s, 3)
}
