package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
)

// Invariant 15: damage costs at most the objects whose bytes it hit. Nothing is silently missing, and no
// damage ends the process or makes the store unusable.
func TestDamageAnywhereCostsAtMostTheDamagedObjects(t *testing.T) {
	const trials = 24
	for name, opts := range map[string]store.Options{"plain": {}, "encrypted": {Key: make([]byte, 32)}} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			s := mustOpen(t, base, opts)
			fill(t, s, 3, 10)
			if err := s.Rewrite(); err != nil {
				t.Fatal(err)
			}
			fill(t, s, 10, 20)
			commitPairs(t, s, somePairs(10)...)
			s.Close()
			saw := map[string]int{}
			for seed := range trials {
				d := damaged{T: t, dir: copyFolder(t, base), opts: opts, random: rand.New(rand.NewPCG(uint64(seed), 1)), saw: saw}
				d.run(seed)
			}
			t.Logf("%d trials: %v", trials, saw)
			for _, outcome := range []string{"whole", "objects lost", "values lost"} {
				if saw[outcome] == 0 {
					t.Errorf("no trial ended as %q: the test does not test what it should", outcome)
				}
			}
		})
	}
}

// damaged is one trial with a damaged file.
type damaged struct {
	*testing.T
	dir      string
	opts     store.Options
	random   *rand.Rand
	saw      map[string]int // by what came out
	log      []byte         // before the damage
	from, to int            // of the log that was hit
}

func (d *damaged) run(seed int) {
	d.log = readMain(d, d.dir)
	if d.random.IntN(4) == 0 {
		d.hit("cache.index")
	} else {
		d.from, d.to = d.hit("cache.log")
	}
	s, err := store.Open(d.dir, d.opts)
	if err != nil {
		d.Fatalf("seed %d: a damaged file keeps the store from opening: %v", seed, err)
	}
	defer func() { s.Close() }()
	if s.Recovery().Cause != nil {
		d.Fatalf("seed %d: a commit was lost, though it is on disk twice: %v", seed, s.Recovery().Cause)
	}
	outcome := "whole"
	for view := range testViews {
		// What is given is whole after that, whether somebody has found the damage before or not.
		if seed%2 == 0 && len(d.lost(s, view)) > 0 {
			outcome = "objects lost"
		}
		mustCommit(d, s, whole(view, 20)) // as if the cloud was there again
	}
	if err := s.CheckTable("records"); errors.Is(err, store.ErrCorrupt) {
		outcome = "values lost"
		commitPairs(d, s, somePairs(10)...)
	} else if err != nil {
		d.Fatalf("seed %d: %v", seed, err)
	}
	d.saw[outcome]++
	heal(d, s)
	mustHold(d, s, 20)
	for view := range testViews {
		mustCommit(d, s, step(view, 20))
	}
	s.Close()
	s = mustOpen(d, d.dir, d.opts)
	mustHold(d, s, 21)
}

// hit cuts a file, flips bits in it, or clears a part, and returns which.
func (d *damaged) hit(name string) (from, to int) {
	path := filepath.Join(d.dir, name)
	file, err := os.ReadFile(path)
	if err != nil {
		d.Fatal(err)
	}
	from = d.random.IntN(len(file))
	to = min(from+1, len(file))
	switch d.random.IntN(4) {
	case 0:
		from, to = len(file)-d.random.IntN(len(file)/10), len(file)
		file = file[:from]
	case 1: // a sector
		from = from / 512 * 512
		to = min(from+512, len(file))
		clear(file[from:to])
	case 2:
		to = min(from+d.random.IntN(8<<10), len(file))
		for i := from; i < to; i++ {
			file[i] = byte(d.random.Uint32())
		}
	default:
		file[from] ^= 1 << d.random.IntN(8)
	}
	if err := os.WriteFile(path, file, 0o600); err != nil {
		d.Fatal(err)
	}
	return from, to
}

// lost returns the members of a view that cannot be read, and checks that damage has hit them.
func (d *damaged) lost(s *store.Store, view int) (lost []string) {
	v, members, err := s.Members(viewID(view))
	if err != nil || v.ResourceVersion != "20" || len(members) != len(membersAt(20)) {
		d.Fatalf("view %d is at %q with %d members: %v", view, v.ResourceVersion, len(members), err)
	}
	for _, m := range members {
		want := objectBytes(m.Name, membersAt(20)[m.Name])
		got, err := readObject(s, testScope, store.NewObject(m.Name, m.ResourceVersion, want))
		switch {
		case errors.Is(err, store.ErrCorrupt):
			if at := bytes.Index(d.log, want); d.opts.Key == nil && !d.hits(at-4, at+len(want)) {
				d.Fatalf("%s is lost, which is at %d, and %d to %d were hit", m.Name, at, d.from, d.to)
			}
			lost = append(lost, m.Name)
		case err != nil || !bytes.Equal(got, want):
			d.Fatalf("%s: %d bytes of %d, %v", m.Name, len(got), len(want), err)
		}
	}
	return lost
}

// hits reports whether damage has hit bytes of the log. An object may be there more than once.
func (d *damaged) hits(from, to int) bool {
	copies := bytes.Count(d.log, d.log[from+4:to])
	return from < d.to && to > d.from || copies > 1
}

// What is damaged in both files may be lost, but is never wrong, and the store works on.
func TestDamageOfBothFilesIsNeverWrong(t *testing.T) {
	base := t.TempDir()
	s := mustOpen(t, base, store.Options{})
	fill(t, s, 3, 20)
	s.Close()
	lost := 0
	for seed := range 12 {
		d := damaged{T: t, dir: copyFolder(t, base), random: rand.New(rand.NewPCG(uint64(seed), 2))}
		for range 1 + seed%4 {
			d.hit("cache.log")
			d.hit("cache.index")
		}
		s, err := store.Open(d.dir, store.Options{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if s.Recovery().Cause != nil {
			lost++
		}
		for view := range testViews {
			if _, err := verify(s, view); err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrNotFound) {
				t.Fatalf("seed %d: view %d: %v", seed, view, err)
			}
			mustCommit(t, s, whole(view, 20))
			for err := errWrong; err != nil; { // each read finds one more object that is damaged
				if _, err = verify(s, view); err != nil {
					mustCommit(t, s, whole(view, 20))
				}
			}
		}
		heal(t, s)
		mustHold(t, s, 20)
		s.Close()
		mustHold(t, mustOpen(t, d.dir, store.Options{}), 20)
	}
	if lost == 0 {
		t.Fatal("no commit was lost: the test does not test what it should")
	}
}

// A commit that both files have lost is noticed: by views that were changed later, and by tables.
func TestALostCommitIsNoticed(t *testing.T) {
	s := mustOpen(t, loseCommit(t), store.Options{})
	if !errors.Is(s.Recovery().Cause, store.ErrCorrupt) {
		t.Fatalf("got recovery %v", s.Recovery())
	}
	var of []store.ID
	if err := s.Views(func(v store.View) error {
		if v.Err != nil {
			of = append(of, v.ID)
		}
		return nil
	}); err != nil || !slices.Equal(of, []store.ID{viewID(0)}) {
		t.Fatalf("views %v have lost a change (%v)", of, err)
	}
	for view, want := range []int{-1, 5, 5} {
		got, err := verify(s, view)
		if want < 0 && !errors.Is(err, store.ErrCorrupt) || want >= 0 && (err != nil || got != want) {
			t.Errorf("view %d: got %d, %v", view, got, err)
		}
	}
	if err := s.Commit(store.Batch{Changes: []store.Change{step(0, 7)}}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a change of the damaged view: %v", err)
	}
	if err := s.CheckTable("records"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a table that may have been changed: %v", err)
	}
	commitPairs(t, s, store.Pair{Table: "others", Key: "a", Value: []byte("v")})
	if err := s.CheckTable("records"); err == nil {
		t.Error("a change of another table makes this one whole")
	}
	commitPairs(t, s, store.Pair{Table: "records", Key: "a", Value: []byte("v")})
	mustCommit(t, s, whole(0, 7), whole(1, 7), whole(2, 7))
	if err := s.CheckTable("records"); err != nil {
		t.Errorf("after the next change: %v", err)
	}
	heal(t, s)
	mustHold(t, s, 7)
}

// loseCommit returns a folder in which a commit was lost: of a step from 5 of views 0 and 1. View 0 has another one.
func loseCommit(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 5)
	commitPairs(t, s, somePairs(3)...)
	first := len(readMain(t, dir))
	mustCommit(t, s, step(0, 5), step(1, 5))
	second := len(readMain(t, dir))
	mustCommit(t, s, step(0, 6))
	s.Close()
	file := readMain(t, dir)
	clear(file[first:second])
	writeMain(t, dir, file)
	if err := os.Remove(filepath.Join(dir, "cache.index")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Whoever must know of a loss may be killed before it has written what follows from it.
func TestALossIsKnownUntilSomethingIsCommitted(t *testing.T) {
	unreadable := t.TempDir()
	writeMain(t, unreadable, bytes.Repeat([]byte("no header"), 100))
	for name, dir := range map[string]string{"of a commit": loseCommit(t), "of a log of which nothing can be read": unreadable} {
		t.Run(name, func(t *testing.T) {
			for restart := range 3 {
				s := mustOpen(t, dir, store.Options{})
				if !errors.Is(s.Recovery().Cause, store.ErrCorrupt) || s.CheckTable("records") == nil {
					t.Fatalf("after %d restarts: got recovery %v", restart, s.Recovery())
				}
				heal(t, s)
				s.Close()
			}
			s := mustOpen(t, dir, store.Options{})
			mustCommit(t, s, whole(0, 7), whole(1, 7), whole(2, 7))
			heal(t, s)
			s.Close()
			s = mustOpen(t, dir, store.Options{})
			if s.Recovery().Cause != nil {
				t.Errorf("after a commit: got recovery %v", s.Recovery())
			}
			mustHold(t, s, 7)
		})
	}
}

// What has lost a change is dropped when it becomes stale: once that was committed, nothing would show the loss any more.
func TestAViewThatHasLostAChangeIsDroppedWhenItBecomesStale(t *testing.T) {
	dir := loseCommit(t)
	s := mustOpen(t, dir, store.Options{})
	stale := store.Change{ID: viewID(0), Op: store.MarkStale}
	if err := s.Commit(store.Batch{Changes: []store.Change{stale}}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got error %v", err)
	}
	w := writeback.New(s, writeback.Options{})
	change(t, w, stale)
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	s.Close()
	s = mustOpen(t, dir, store.Options{})
	if v, members, err := s.Members(viewID(0)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("after a restart it is at %s with %d members of %d (%v)", v.ResourceVersion, len(members), len(membersAt(7)), err)
	}
}

// Once something was committed, the log is written anew soon, so that the next start does not find the loss again.
func TestALossThatWasDealtWithIsNotReportedAgain(t *testing.T) {
	dir := loseCommit(t)
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, dir, store.Options{})
		stop := runStore(t, s)
		synctest.Wait() // it is written anew before, too
		mustCommit(t, s, whole(0, 7), whole(1, 7), whole(2, 7))
		synctest.Wait()
		stop()
		s.Close()
		s = mustOpen(t, dir, store.Options{})
		if s.Recovery().Cause != nil {
			t.Errorf("got recovery %v", s.Recovery())
		}
		mustHold(t, s, 7)
	})
}

// heal writes the log anew, which leaves no damage in it.
func heal(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Rewrite(); err != nil {
		t.Fatal(err)
	}
}

func commitPairs(t testing.TB, s *store.Store, pairs ...store.Pair) {
	t.Helper()
	if err := s.Commit(store.Batch{Pairs: pairs}); err != nil {
		t.Fatal(err)
	}
}

func somePairs(n int) (pairs []store.Pair) {
	for i := range n {
		pairs = append(pairs, store.Pair{Table: "records", Key: fmt.Sprintf("key %02d", i), Value: bytes.Repeat(fmt.Appendf(nil, "value %02d", i), 100)})
	}
	return pairs
}

// Bytes of an object that look like a frame are not taken for one when damage is skipped.
func TestBytesOfObjectsAreNotTakenForCommits(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir, store.Options{})
	fill(t, s, 3, 5)
	own := readMain(t, dir)
	mustCommit(t, s, store.Change{ID: viewID(9), Op: store.Replace, Header: testHeader(1), Put: []store.Object{store.NewObject("default/forged", "1", own)}})
	mustCommit(t, s, step(0, 5), step(1, 5), step(2, 5))
	s.Close()
	file := readMain(t, dir)
	file[len(own)+4] ^= 1 // the length in the header of the frame that has them
	writeMain(t, dir, file)
	if err := os.Remove(filepath.Join(dir, "cache.index")); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, dir, store.Options{})
	mustHold(t, s, 6)
}

// FuzzLog opens any bytes as a log and as an index.
func FuzzLog(f *testing.F) {
	dir := f.TempDir()
	s := mustOpen(f, dir, store.Options{})
	mustCommit(f, s, whole(0, 5))
	commitPairs(f, s, somePairs(2)...)
	s.Close()
	index, err := os.ReadFile(filepath.Join(dir, "cache.index"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(readMain(f, dir), index)
	f.Fuzz(func(t *testing.T, log, index []byte) {
		dir := t.TempDir()
		writeMain(t, dir, log)
		if err := os.WriteFile(filepath.Join(dir, "cache.index"), index, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(dir, store.Options{})
		if errors.Is(err, store.ErrKey) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		mustCommit(t, s, whole(0, 7))
		if version, err := verify(s, 0); err != nil || version != 7 {
			t.Fatalf("got version %d, %v", version, err)
		}
	})
}
