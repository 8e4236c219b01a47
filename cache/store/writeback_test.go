package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/store/writeback"
)

// slowDisk is a store that is slow, and can be made to fail.
type slowDisk struct {
	takes time.Duration

	mu      sync.Mutex
	fails   error
	batches []store.Batch
	at      []time.Time
	views   map[store.ID]bool // that were committed and not dropped
}

func (d *slowDisk) Commit(b store.Batch) error {
	time.Sleep(d.takes)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails != nil {
		return d.fails
	}
	d.batches = append(d.batches, b)
	d.at = append(d.at, time.Now())
	if d.views == nil {
		d.views = map[store.ID]bool{}
	}
	for i := range b.Changes {
		d.views[b.Changes[i].ID] = b.Changes[i].Op != store.Drop
	}
	return nil
}

func (d *slowDisk) HasView(id store.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.views[id]
}

func (d *slowDisk) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = err
}

// take returns what was committed since it was last called.
func (d *slowDisk) take() []store.Batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	taken := d.batches
	d.batches = nil
	return taken
}

// losses are the views that a Writer has given up, with the reasons.
type losses struct {
	mu    sync.Mutex
	views []store.ID
	errs  []error
}

func (l *losses) add(id store.ID, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.views = append(l.views, id)
	l.errs = append(l.errs, err)
}

// run runs w until stop is called, which fails the test if Run has failed.
func run(t *testing.T, w *writeback.Writer) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func change(t *testing.T, w *writeback.Writer, c store.Change) {
	t.Helper()
	if err := w.Change(c); err != nil {
		t.Fatal(err)
	}
}

// touch returns an update of one object, from one version of its view to the next.
func touch(view, from int, name string, size int) store.Change {
	v := strconv.Itoa(from + 1)
	return store.Change{
		ID: viewID(view), From: strconv.Itoa(from), Header: testHeader(from + 1),
		Put: []store.Object{store.NewObject(name, v, make([]byte, size))},
	}
}

// Invariant 24: at N updates a second, at most one commit a second, and one in four of them if they do not cease.
func TestCommitRateDoesNotDependOnUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowDisk{}
		w := writeback.New(disk, writeback.Options{})
		stop := run(t, w)
		const seconds, perSecond = 60, 200
		for v := range seconds * perSecond {
			change(t, w, touch(0, v, objectName(v%50), 1000))
			time.Sleep(time.Second / perSecond)
		}
		stop()
		if n := len(disk.batches); n > seconds/4+1 || n < seconds/5 {
			t.Fatalf("%d commits in %d seconds", n, seconds)
		}
		at := "0"
		for i, b := range disk.batches {
			if i > 0 && i < len(disk.at)-1 && disk.at[i].Sub(disk.at[i-1]) < time.Second {
				t.Fatalf("two commits within %v", disk.at[i].Sub(disk.at[i-1]))
			}
			// Later changes of an object replace earlier ones.
			if c := b.Changes[0]; len(b.Changes) != 1 || len(c.Put) > 50 || c.From != at {
				t.Fatalf("commit %d has %d changes with %d members, from %s; the last was to %s", i, len(b.Changes), len(c.Put), c.From, at)
			}
			at = b.Changes[0].Header.ResourceVersion
		}
		if at != strconv.Itoa(seconds*perSecond) {
			t.Fatalf("the last commit is of version %s", at)
		}
	})
}

// A power cut soon after a LIST does not lose it; and yet two commits are a second apart.
func TestAListAfterAnIdleSecondIsSoonOnDisk(t *testing.T) {
	ceaseless := make([]int, 100) // for nine seconds
	for i := range ceaseless {
		ceaseless[i] = 90 * i
	}
	for name, c := range map[string]struct{ lists, objects, commits []int }{ // ms after the start
		"a list":                           {lists: []int{0}, commits: []int{100}},
		"lists together":                   {lists: []int{0, 60}, commits: []int{100}},
		"a list within a second":           {lists: []int{0, 300}, commits: []int{100, 1200}},
		"a list after another idle second": {lists: []int{0, 1200}, commits: []int{100, 1300}},
		"an object":                        {objects: []int{0}, commits: []int{100}},
		"an object within a second":        {objects: []int{0, 300}, commits: []int{100, 2100}},
		"objects soon after each other":    {objects: []int{0, 90}, commits: []int{190}},
		"objects that do not cease":        {objects: ceaseless, commits: []int{1000, 5000, 9000}},
		"a list among them":                {lists: []int{200}, objects: ceaseless, commits: []int{300, 4300, 8300, 10300}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &slowDisk{}
				w := writeback.New(disk, writeback.Options{})
				stop := run(t, w)
				time.Sleep(time.Minute)
				start := time.Now()
				for i, at := range c.objects {
					time.AfterFunc(time.Duration(at)*time.Millisecond, func() { change(t, w, touch(0, i, "x", 1)) })
				}
				for i, at := range c.lists {
					time.AfterFunc(time.Duration(at)*time.Millisecond, func() { change(t, w, whole(1+i, 1)) })
				}
				time.Sleep(time.Minute)
				stop()
				var commits []int
				for _, at := range disk.at {
					commits = append(commits, int(at.Sub(start).Milliseconds()))
				}
				if !slices.Equal(commits, c.commits) {
					t.Errorf("commits at %v ms, want %v", commits, c.commits)
				}
			})
		})
	}
}

// Invariant 16: a disk that takes 1 s per write delays nobody.
func TestSlowDiskDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowDisk{takes: time.Second}
		w := writeback.New(disk, writeback.Options{})
		stop := run(t, w)
		for v := range 2000 {
			time.Sleep(5 * time.Millisecond)
			start := time.Now()
			change(t, w, touch(0, v, objectName(v%50), 10))
			if err := w.Put(store.Pair{Table: "spool", Key: fmt.Sprint(v), Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			key := store.ObjectKey{Scope: testScope, Name: objectName(v % 50), ResourceVersion: strconv.Itoa(v + 1), Sum: store.SumOf(make([]byte, 10))}
			if b, ok := w.Object(key); !ok || len(b) != 10 {
				t.Fatalf("version %d cannot be read while it waits", v+1)
			}
			if waited := time.Since(start); waited > 0 {
				t.Fatalf("waited %v", waited)
			}
		}
		stop()
		if w.Pending() != 0 {
			t.Fatalf("%d bytes are pending at the end", w.Pending())
		}
		n := 0
		for _, b := range disk.batches {
			n += len(b.Pairs)
		}
		if n != 2000 {
			t.Fatalf("%d pairs of 2000 were committed", n)
		}
	})
}

func TestTheLargestViewIsGivenUpBeyondTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowDisk{}
		disk.fail(store.ErrNoSpace)
		var lost losses
		var failures atomic.Int32
		w := writeback.New(disk, writeback.Options{
			MaxPending: 1 << 20,
			Lost:       lost.add,
			Committed: func(stats writeback.CommitStats) {
				if errors.Is(stats.Err, store.ErrNoSpace) {
					failures.Add(1)
				}
			},
		})
		stop := run(t, w)
		for v := range 30000 {
			change(t, w, touch(0, v, fmt.Sprint(v), 1000))
			if v%100 == 0 {
				change(t, w, touch(1, v/100, "small", 100))
				time.Sleep(time.Second / 10)
			}
			if w.Pending() > 2<<20 {
				t.Fatalf("%d bytes are pending", w.Pending())
			}
		}
		synctest.Wait()
		if len(lost.views) != 1 || lost.views[0] != viewID(0) || !errors.Is(lost.errs[0], writeback.ErrOverflow) || failures.Load() < 3 {
			t.Fatalf("lost %v for %v, with %d failures", lost.views, lost.errs, failures.Load())
		}
		disk.fail(nil)
		time.Sleep(10 * time.Second) // no change comes: it is tried again all the same
		ops := map[store.ID]store.Op{}
		for _, b := range disk.take() {
			for _, c := range b.Changes {
				ops[c.ID] = c.Op
				if c.ID == viewID(1) && (c.From != "0" || c.Header.ResourceVersion != "300") {
					t.Errorf("the small view goes from %s to %s", c.From, c.Header.ResourceVersion)
				}
			}
		}
		if ops[viewID(0)] != store.MarkStale || ops[viewID(1)] != store.Update {
			t.Fatalf("got %v", ops)
		}
		// Its updates are ignored until it is replaced.
		change(t, w, touch(0, 30000, "x", 10))
		time.Sleep(2 * time.Second)
		if len(disk.take()) != 0 {
			t.Fatal("an update of a stale view was committed")
		}
		change(t, w, whole(0, 9))
		change(t, w, step(0, 9))
		stop()
		if got := disk.take(); len(got) != 1 || got[0].Changes[0].Header.ResourceVersion != "10" {
			t.Fatalf("got %+v", got)
		}
	})
}

// While the disk cannot be written, a flood of queries, each of which evicts the view of another, fills no memory.
func TestAViewThatWasNeverStoredLeavesNothingBehindWhenItIsDropped(t *testing.T) {
	disk := &slowDisk{}
	disk.fail(store.ErrNoSpace)
	var lost losses
	w := writeback.New(disk, writeback.Options{MaxPending: 1 << 20, Lost: lost.add})
	for i := range 5_000 {
		one := store.Change{ID: id(fmt.Sprint(i)), Op: store.Replace, Header: testHeader(1)}
		change(t, w, one)
		change(t, w, store.Change{ID: one.ID, Op: store.Drop})
	}
	if n := w.Pending(); n > 0 {
		t.Errorf("%d bytes wait", n)
	}
	change(t, w, whole(0, 3)) // what the kubelet reads
	if len(lost.views) > 0 {
		t.Errorf("lost %d views: %v", len(lost.views), lost.errs)
	}
}

// A view that is dropped while it is committed is on disk if that succeeds.
func TestAViewThatIsDroppedDuringItsCommit(t *testing.T) {
	for name, fails := range map[string]error{"which succeeds": nil, "which fails": store.ErrNoSpace} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &slowDisk{takes: time.Second}
				disk.fail(fails)
				w := writeback.New(disk, writeback.Options{})
				change(t, w, whole(0, 3))
				time.AfterFunc(500*time.Millisecond, func() { change(t, w, store.Change{ID: viewID(0), Op: store.Drop}) })
				if err := w.Flush(); !errors.Is(err, fails) {
					t.Fatal(err)
				}
				if waits := w.Pending() > 0; waits != (fails == nil) {
					t.Errorf("the drop waits: %v", waits)
				}
				disk.fail(nil)
				if err := w.Flush(); err != nil || disk.HasView(viewID(0)) {
					t.Errorf("the view is on disk: %v (%v)", disk.HasView(viewID(0)), err)
				}
			})
		})
	}
}

func TestARefusedViewDoesNotPreventOtherCommits(t *testing.T) {
	s := mustOpen(t, t.TempDir(), store.Options{})
	fill(t, s, 3, 5)
	synctest.Test(t, func(t *testing.T) {
		var lost losses
		commits := 0 // is Run's
		w := writeback.New(s, writeback.Options{
			Lost:      lost.add,
			Committed: func(writeback.CommitStats) { commits++ },
		})
		stop := run(t, w)
		change(t, w, step(0, 5))
		change(t, w, step(1, 8)) // it is at 5
		change(t, w, step(2, 5))
		change(t, w, step(2, 8)) // and this does not follow on the one before
		time.Sleep(2 * time.Second)
		stop()
		if len(lost.views) != 2 || commits != 1 {
			t.Fatalf("lost %v with %d commits", lost.views, commits)
		}
		for _, err := range lost.errs {
			if !errors.Is(err, store.ErrConflict) {
				t.Errorf("lost for %v", err)
			}
		}
	})
	for view, want := range []struct {
		version int
		stale   bool
	}{{6, false}, {5, true}, {5, true}} {
		version, err := verify(s, view)
		if err != nil || version != want.version {
			t.Errorf("view %d is at %d, want %d (%v)", view, version, want.version, err)
		}
		if v, _, err := s.Members(viewID(view)); err != nil || v.Stale != want.stale {
			t.Errorf("view %d: stale is %v, want %v (%v)", view, v.Stale, want.stale, err)
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// A replacement may omit bytes of an earlier change that are not on disk yet, because they wait, or
// because their commit fails.
func TestAReplacementReusesPendingBytes(t *testing.T) {
	for name, commitFails := range map[string]bool{"they wait": false, "their commit fails": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := &slowDisk{takes: time.Second}
				if commitFails {
					disk.fail(store.ErrNoSpace)
				}
				w := writeback.New(disk, writeback.Options{})
				stop := run(t, w)
				change(t, w, touch(0, 0, "x", 1000))
				if commitFails {
					time.Sleep(500 * time.Millisecond) // the commit is under way
				}
				without := touch(0, 0, "x", 1000)
				without.Op, without.From, without.Put[0].Bytes = store.Replace, "", nil
				change(t, w, without)
				time.Sleep(time.Second)
				disk.fail(nil)
				stop()
				batches := disk.take()
				if len(batches) != 1 || len(batches[0].Changes) != 1 {
					t.Fatalf("got %d commits", len(batches))
				}
				if c := batches[0].Changes[0]; c.Op != store.Replace || len(c.Put) != 1 || len(c.Put[0].Bytes) != 1000 {
					t.Fatalf("the replacement came without the bytes: %v, %d members", c.Op, len(c.Put))
				}
			})
		})
	}
}

func TestRunEndsWhenTheStoreCannotBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &slowDisk{}
		disk.fail(store.ErrClosed)
		w := writeback.New(disk, writeback.Options{})
		change(t, w, whole(0, 1))
		if err := w.Run(t.Context()); !errors.Is(err, store.ErrClosed) {
			t.Fatalf("got %v", err)
		}
	})
}

// flakyDisk is a store whose commits fail now and then, before or after the fact.
type flakyDisk struct {
	*store.Store
	r *rand.Rand
}

func (d *flakyDisk) Commit(b store.Batch) error {
	switch d.r.IntN(4) {
	case 0:
		return errors.New("nothing was written")
	case 1: // as when the last sync fails
		return errors.Join(d.Store.Commit(b), errors.New("it was written"))
	}
	return d.Store.Commit(b)
}

// However changes are merged, dropped, replaced and tried again, the disk has one consistent state,
// and in the end the last one.
func TestTheWriterCommitsConsistentStates(t *testing.T) {
	dir := t.TempDir()
	for seed := range 2 {
		s := mustOpen(t, fmt.Sprint(dir, "/", seed), store.Options{})
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 7))
			versions := [testViews]int{}
			lost := [testViews]bool{}
			var mu sync.Mutex
			w := writeback.New(&flakyDisk{s, rand.New(rand.NewPCG(uint64(seed), 8))}, writeback.Options{
				Lost: func(id store.ID, _ error) {
					mu.Lock()
					defer mu.Unlock()
					for view := range testViews {
						lost[view] = lost[view] || id == viewID(view)
					}
				},
			})
			stop := run(t, w)
			for range 300 {
				view := r.IntN(testViews)
				mu.Lock()
				replace := lost[view] || versions[view] == 0 || r.IntN(20) == 0
				lost[view] = false
				mu.Unlock()
				switch {
				case r.IntN(40) == 0:
					change(t, w, store.Change{ID: viewID(view), Op: store.Drop})
					versions[view] = 0
				case replace:
					versions[view] = 1 + r.IntN(40)
					change(t, w, whole(view, versions[view]))
				default:
					change(t, w, step(view, versions[view]))
					versions[view]++
				}
				time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
				synctest.Wait()
				for view := range testViews {
					if _, err := verify(s, view); err != nil && !errors.Is(err, store.ErrNotFound) {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
			}
			time.Sleep(time.Minute)
			stop()
			for view, want := range versions {
				got, err := verify(s, view)
				if !errors.Is(err, store.ErrNotFound) && (err != nil || !lost[view] && got != want) || want > 0 && !lost[view] && err != nil {
					t.Fatalf("seed %d: view %d is at %d, want %d (%v)", seed, view, got, want, err)
				}
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
