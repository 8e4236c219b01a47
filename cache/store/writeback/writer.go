// Package writeback stands between those who serve clients and the store: nobody waits for
// the disk. A Writer collects changes in memory and commits them once a second, a later
// change of an object or key in the place of an earlier one.
//
// What waits is bounded. Beyond the bound, and where the store refuses a change, a view is
// given up: it is marked stale on disk rather than being wrong, and the owner is told. What
// a crash loses is the last changes only: each commit leaves a state that has been.
//
// Its tests are in package store, beside the model of views that they check against.
package writeback

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// ErrOverflow is why a Writer gave up a view's changes: the disk did not take
// them as fast as they came.
var ErrOverflow = errors.New("too much is waiting for the disk")

// committer is a Store, as far as a Writer needs it.
type committer interface{ Commit(store.Batch) error }

// Options of a Writer. The zero value is usable.
type Options struct {
	// Interval is how long changes are collected before they are committed: 1 s
	// by default. While changes do not cease, commits are two intervals apart:
	// each syncs the disk twice, so that there is a sync a second at most.
	Interval time.Duration
	// MaxPending bounds the bytes that wait for a commit: 32 MiB by default.
	// As many again may be in a commit that is under way.
	MaxPending int64
	// Lost is called for a view whose changes were given up, and why. It is
	// stale on disk from then on, or gone if it was damaged there; its changes
	// are thrown away until one that replaces or drops it. Lost must
	// not block. It may be called by the goroutine of Change or of Run.
	Lost func(store.ID, error)
	// Committed is called by Run after each commit, failed or not.
	Committed func(CommitStats)
}

// CommitStats is what one commit of a Writer was.
type CommitStats struct {
	Duration time.Duration
	Bytes    int64 // given to the store
	Views    int
	Err      error // nil if it is on disk; else it is tried again
}

// Writer stands between those who serve clients and the disk. Change and Put
// only take a short lock and return; Run commits what has been collected, a
// later change of an object or key in the place of an earlier one. What cannot
// be committed stays in memory within a bound; beyond it, the view with the
// most pending is given up and marked stale on disk instead of being wrong.
type Writer struct {
	store committer
	opts  Options

	// dirty says that something is pending. One is enough: Run takes all.
	dirty chan struct{}

	mu      sync.Mutex
	next    *pending // collected
	current *pending // in a commit, nil if there is none; only Run changes it
	lost    map[store.ID]bool
}

// New returns a Writer that does nothing until Run is called.
func New(to committer, opts Options) *Writer {
	opts.Interval = cmp.Or(opts.Interval, time.Second)
	opts.MaxPending = cmp.Or(opts.MaxPending, 32<<20)
	if opts.Lost == nil {
		opts.Lost = func(store.ID, error) {}
	}
	if opts.Committed == nil {
		opts.Committed = func(CommitStats) {}
	}
	return &Writer{
		store: to,
		opts:  opts,
		dirty: make(chan struct{}, 1),
		next:  newPending(),
		lost:  map[store.ID]bool{},
	}
}

// Change takes over a change: neither it nor the bytes it points to may be
// changed afterwards. It does no I/O. The only error is ErrInvalid.
//
// Bytes may be nil for objects that the view on disk holds, or that an earlier
// change to it has given.
func (w *Writer) Change(c store.Change) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("collect change: %w", err)
	}
	w.tell(w.collect(&c))
	w.wake()
	return nil
}

// Put takes over new values of keys. They are never given up. The only error is ErrInvalid.
func (w *Writer) Put(pairs ...store.Pair) error {
	for i := range pairs {
		if err := pairs[i].Validate(); err != nil {
			return fmt.Errorf("collect pairs: %w", err)
		}
	}
	w.mu.Lock()
	for _, p := range pairs {
		w.next.set(p)
	}
	w.mu.Unlock()
	w.wake()
	return nil
}

// Object returns the bytes of an object that waits for its commit. What is not
// here is in the store, if it is anywhere: look there next. The bytes may not
// be changed.
func (w *Writer) Object(k store.ObjectKey) ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, ok := w.next.object(k); ok || w.current == nil {
		return b, ok
	}
	return w.current.object(k)
}

// Get returns the value of a key that waits for its commit, nil if the key is to
// be deleted. What is not here is in the store, if it is anywhere.
func (w *Writer) Get(table, key string) (value []byte, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := pairKey{table, key}
	pair, ok := w.next.pairs[k]
	if !ok && w.current != nil {
		pair, ok = w.current.pairs[k]
	}
	return pair.Value, ok
}

// Pending returns how many bytes wait for a commit or are in one.
func (w *Writer) Pending() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.next.bytes
	if w.current != nil {
		n += w.current.bytes
	}
	return n
}

func (w *Writer) wake() {
	select {
	case w.dirty <- struct{}{}:
	default:
	}
}

// loss is a view that was given up.
type loss struct {
	id  store.ID
	err error
}

func (w *Writer) tell(losses []loss) {
	for _, l := range losses {
		w.opts.Lost(l.id, l.err)
	}
}

func (w *Writer) collect(c *store.Change) []loss {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.Op == store.Replace || c.Op == store.Drop:
		delete(w.lost, c.ID)
	case w.lost[c.ID]:
		return nil
	}
	if err := w.next.add(c); err != nil {
		return []loss{w.loseLocked(c.ID, store.MarkStale, err)}
	}
	return w.boundLocked()
}

// boundLocked gives up views until what is pending is within its bound.
func (w *Writer) boundLocked() []loss {
	var losses []loss
	for w.next.bytes > w.opts.MaxPending {
		id, ok := w.next.largest()
		if !ok {
			break // what is left are marks and keys
		}
		losses = append(losses, w.loseLocked(id, store.MarkStale, ErrOverflow))
	}
	return losses
}

func (w *Writer) loseLocked(id store.ID, op store.Op, err error) loss {
	w.next.lose(id, op)
	w.lost[id] = true
	return loss{id, err}
}
