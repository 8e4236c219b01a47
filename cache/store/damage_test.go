package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/edgehub-io/edgehub/cache/store"
)

// Invariant 15: a damaged record is reported or fetched again, and nothing is ever silently missing.
// No damage ends the process or makes the store unusable.
func TestDamageAnywhereNeverCausesWrongDataOrACrash(t *testing.T) {
	trials := 200
	if testing.Short() {
		trials = 40
	}
	for name, opts := range map[string]store.Options{"plain": {}, "encrypted": {Key: make([]byte, 32)}} {
		t.Run(name, func(t *testing.T) {
			trials := trials
			if opts.Key != nil {
				trials /= 2
			}
			base := t.TempDir()
			s := mustOpen(t, base, opts)
			fill(t, s, 3, 10)
			if err := s.Snapshot(); err != nil {
				t.Fatal(err)
			}
			for v := 10; v < 30; v++ {
				for view := range testViews {
					mustCommit(t, s, step(view, v))
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			saw := map[string]int{}
			for seed := range trials {
				d := damaged{T: t, dir: copyFolder(t, base), opts: opts, seed: uint64(seed), saw: saw}
				d.run()
			}
			t.Logf("%d trials: %v", trials, saw)
			for _, outcome := range []string{"snapshot at open", "whole", "view refetched"} {
				if !testing.Short() && saw[outcome] == 0 {
					t.Errorf("no trial ended as %q: the test does not test what it should", outcome)
				}
			}
		})
	}
}

// damaged is one trial with a damaged file.
type damaged struct {
	*testing.T
	dir  string
	opts store.Options
	seed uint64
	saw  map[string]int // by what came out
}

func (d *damaged) run() {
	d.hit()
	s, err := store.Open(d.dir, d.opts)
	if err != nil {
		d.Fatalf("seed %d: a damaged file keeps the store from opening: %v", d.seed, err)
	}
	defer func() { s.Close() }()
	if s.Recovery().Cause != nil {
		if !s.Recovery().Snapshot {
			d.Fatalf("seed %d: the snapshot was not used: %v", d.seed, s.Recovery().Cause)
		}
		d.saw["snapshot at open"]++
	}
	outcome := "whole"
	for view := range testViews {
		if err := d.use(s, view); errors.Is(err, store.ErrDamaged) {
			s.Close()
			if s, err = store.Open(d.dir, d.opts); err != nil {
				d.Fatalf("seed %d: the store does not open after it was damaged: %v", d.seed, err)
			}
			if s.Recovery().Cause == nil {
				d.Fatalf("seed %d: a file known to be damaged is used again", d.seed)
			}
			outcome = "snapshot at work"
			if err := d.use(s, view); err != nil {
				d.Fatalf("seed %d: %v", d.seed, err)
			}
		} else if errors.Is(err, store.ErrCorrupt) {
			outcome = "view refetched"
			d.refetch(s, view)
		} else if err != nil {
			d.Fatalf("seed %d: %v", d.seed, err)
		}
	}
	d.saw[outcome]++
}

// hit truncates the file or flips bits in it.
func (d *damaged) hit() {
	r := rand.New(rand.NewPCG(d.seed, 1))
	file := readMain(d, d.dir)
	switch d.seed % 8 {
	case 0:
		file = file[:r.IntN(len(file))]
	case 1: // a page is lost
		at := r.IntN(len(file)/4096) * 4096
		clear(file[at : at+4096])
	case 2: // a page is written to the wrong place
		from, to := r.IntN(len(file)/4096)*4096, r.IntN(len(file)/4096)*4096
		copy(file[to:to+4096], file[from:from+4096])
	case 3: // in the headers of pages
		for range 4 {
			file[r.IntN(len(file)/4096)*4096+r.IntN(64)] ^= 1 << r.IntN(8)
		}
	default:
		for range 1 << r.IntN(5) {
			file[r.IntN(len(file))] ^= 1 << r.IntN(8)
		}
	}
	writeMain(d, d.dir, file)
}

// use reads a view, and writes to it.
func (d *damaged) use(s *store.Store, view int) error {
	version, err := verify(s, view)
	if err != nil {
		if errors.Is(err, errWrong) {
			d.Fatalf("seed %d: %v", d.seed, err)
		}
		return err
	}
	if err := s.Commit(store.Batch{Changes: []store.Change{step(view, version)}}); err != nil {
		return err
	}
	if after, err := verify(s, view); err == nil && after != version+1 {
		d.Fatalf("seed %d: view %d is at %d after a commit of %d", d.seed, view, after, version+1)
	} else if err != nil {
		return err
	}
	return s.Views(func(v store.View) error { return v.Err })
}

// refetch replaces a damaged view, as the cache does.
func (d *damaged) refetch(s *store.Store, view int) {
	for v := range testViews { // Views has returned all of them
		if _, err := verify(s, v); err == nil && v != view {
			continue
		}
		err := s.Commit(store.Batch{Changes: []store.Change{{ID: viewID(v), Op: store.Drop}}})
		if err == nil {
			err = s.Commit(store.Batch{Changes: []store.Change{whole(v, 50)}})
		}
		if errors.Is(err, store.ErrDamaged) {
			return // the store is opened again: another trial has that
		}
		if err != nil {
			d.Fatalf("seed %d: a damaged view cannot be fetched again: %v", d.seed, err)
		}
		if version, err := verify(s, v); err != nil && !errors.Is(err, store.ErrDamaged) || err == nil && version != 50 {
			d.Fatalf("seed %d: after it was fetched again view %d is at %d: %v", d.seed, v, version, err)
		}
	}
}

// flip damages all occurrences of some bytes in the file.
func flip(t *testing.T, dir string, what []byte) {
	t.Helper()
	file := readMain(t, dir)
	found := false
	for at := 0; ; found = true {
		i := bytes.Index(file[at:], what)
		if i < 0 {
			break
		}
		at += i + len(what)
		file[at-1] ^= 0x10
	}
	if !found {
		t.Fatalf("%q is not in the file", what)
	}
	writeMain(t, dir, file)
}

func TestDamagedRecordIsNamedAndCanBeFetchedAgain(t *testing.T) {
	name := ""
	for name = range membersAt(5) {
		break
	}
	first := objectBytes(name, membersAt(5)[name])
	for what, tt := range map[string]struct {
		flip    []byte
		views   int // that are damaged by it
		names   bool
		headers int
	}{
		"an object's bytes, in all views": {flip: first[:16], views: testViews, names: true},
		"a header":                        {flip: []byte("one view's blob"), views: 1, headers: 1},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, store.Options{})
			fill(t, s, 5, 5)
			marked := whole(1, 5)
			marked.Header.Blob = []byte("one view's blob")
			mustCommit(t, s, marked)
			s.Close()
			flip(t, dir, tt.flip)

			s = mustOpen(t, dir, store.Options{})
			headers := 0
			if err := s.Views(func(v store.View) error {
				if v.Err != nil {
					headers++
				}
				return nil
			}); err != nil || headers != tt.headers {
				t.Fatalf("%d headers are damaged, want %d (%v)", headers, tt.headers, err)
			}
			var views []int
			for view := range testViews {
				_, err := verify(s, view)
				var named *store.Error
				if err == nil {
					continue
				}
				if !errors.As(err, &named) || named.View != viewID(view) || tt.names && named.Name != name || !errors.Is(err, store.ErrCorrupt) {
					t.Fatalf("view %d: the error does not say what is damaged: %v", view, err)
				}
				views = append(views, view)
			}
			if len(views) != tt.views {
				t.Fatalf("views %v are damaged, want %d", views, tt.views)
			}
			for _, view := range views {
				mustCommit(t, s, store.Change{ID: viewID(view), Op: store.Drop})
				mustCommit(t, s, whole(view, 5))
			}
			mustHold(t, s, 5)
		})
	}
}

// A branch that leads back to itself would make bbolt recurse until the process ends, which cannot
// be recovered.
func TestCyclesOfPagesAreFoundAtOpen(t *testing.T) {
	base := t.TempDir()
	s := mustOpen(t, base, store.Options{})
	fill(t, s, 30, 30)
	s.Close()
	file := readMain(t, base)
	damagedPages := 0
	for id, page := range pagesOf(file, branchPage) {
		damagedPages++
		dir := copyFolder(t, base)
		firstChild := page[contentAt+8:]
		before := binary.NativeEndian.Uint64(firstChild)
		binary.NativeEndian.PutUint64(firstChild, id)
		writeMain(t, dir, file)
		binary.NativeEndian.PutUint64(firstChild, before)
		s := mustOpen(t, dir, store.Options{})
		for view := range testViews {
			if _, err := verify(s, view); err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		}
		s.Close()
	}
	if damagedPages == 0 {
		t.Fatal("the file has no branches")
	}
}

func TestTruncatedFileIsFoundAtOpen(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 9)
	stats, err := s.Stats()
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	writeMain(t, dir, readMain(t, dir)[:stats.FileBytes-1])
	if s = mustOpen(t, dir, store.Options{}); s.Recovery().Cause == nil {
		t.Fatal("the file is used")
	}
}

// bbolt would let the next commit overwrite a used page that is listed as free.
func TestUsedPagesInTheFreelistAreFoundAtOpen(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 9)
	s.Close()
	file := readMain(t, dir)
	for id, page := range pagesOf(file, freelistPage) {
		if binary.NativeEndian.Uint16(page[countAt:]) > 0 {
			binary.NativeEndian.PutUint64(page[contentAt:], id) // the list itself is said to be free
		}
	}
	writeMain(t, dir, file)
	if s = mustOpen(t, dir, store.Options{}); s.Recovery().Cause == nil {
		t.Fatal("the file is used")
	}
}

// Records may be lost by damage or by a bug.
func TestLostRecordsAreNoticed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lose   func(*bolt.Tx) error
		atOpen bool
	}{
		{"a view", func(tx *bolt.Tx) error { return loseFirst(tx.Bucket([]byte("views"))) }, true},
		{"a table of the store", func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("refs")) }, true},
		{"the first table", func(tx *bolt.Tx) error { return tx.DeleteBucket([]byte("meta")) }, true},
		{"a member", func(tx *bolt.Tx) error {
			id := viewID(1)
			return loseFirst(tx.Bucket([]byte("members")).Bucket(id[:]))
		}, false},
		{"all members of a view", func(tx *bolt.Tx) error {
			id := viewID(1)
			return tx.Bucket([]byte("members")).DeleteBucket(id[:])
		}, false},
		{"an object", func(tx *bolt.Tx) error { return loseFirst(tx.Bucket([]byte("objects"))) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir, store.Options{})
			fill(t, s, 3, 5)
			s.Close()
			db, err := bolt.Open(filepath.Join(dir, "cache.db"), 0o600, nil)
			if err == nil {
				err = errors.Join(db.Update(tt.lose), db.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, dir, store.Options{})
			if atOpen := s.Recovery().Cause != nil; atOpen != tt.atOpen {
				t.Fatalf("missed at open: %v (%v)", atOpen, s.Recovery().Cause)
			}
			if _, err := verify(s, 1); !tt.atOpen && !errors.Is(err, store.ErrDamaged) {
				t.Fatalf("got error %v", err)
			}
			s.Close()
			s = mustOpen(t, dir, store.Options{})
			if (s.Recovery().Cause != nil) == tt.atOpen {
				t.Fatalf("the next open: %v", s.Recovery().Cause)
			}
			fill(t, s, 3, 5)
			mustHold(t, s, 5)
		})
	}
}

func loseFirst(b *bolt.Bucket) error {
	key, _ := b.Cursor().First()
	return b.Delete(key)
}

// If a commit does not find an object that the caller has stored, a page was lost: it is not the
// caller's mistake.
func TestACommitThatMissesAnObjectChecksThePages(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 5)
	again := whole(0, 5)
	for i := range again.Put {
		again.Put[i].Bytes = nil
	}
	unknown := whole(0, 5)
	unknown.Put = append(unknown.Put, store.Object{Name: "default/none", ResourceVersion: "1", Sum: store.SumOf(nil)})
	if err := s.Commit(store.Batch{Changes: []store.Change{unknown}}); !errors.Is(err, store.ErrNoObject) {
		t.Fatalf("the caller's mistake: %v, want ErrNoObject", err)
	}
	s.Close()

	file := readMain(t, dir)
	for _, leaf := range objectLeaves(t, file) {
		leaf.page[leaf.key] = 0xff // of the first object in the page, which is out of order now
	}
	writeMain(t, dir, file)
	s = mustOpen(t, dir, store.Options{})
	if err := s.Commit(store.Batch{Changes: []store.Change{again}}); !errors.Is(err, store.ErrDamaged) {
		t.Errorf("a lost page: %v, want ErrDamaged", err)
	}
}

func TestDamagedSnapshotIsNotUsed(t *testing.T) {
	dir := folderWithSnapshot(t)
	for _, name := range []string{"cache.db", "cache.snapshot.db"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("no store"), 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, dir, store.Options{})
	if r := s.Recovery(); r.Cause == nil || r.Snapshot {
		t.Fatalf("got recovery %+v", r)
	}
	if _, err := verify(s, 0); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("got error %v from an empty store", err)
	}
	fill(t, s, 3, 5)
	mustHold(t, s, 5)
}
