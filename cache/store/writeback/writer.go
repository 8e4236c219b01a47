// Package writeback collects changes in memory and commits them to the store, at most once a
// second, so that no client waits for the disk. A later change of an object or key replaces an
// earlier one.
//
// Pending changes are bounded. Beyond the bound, or if the store refuses a change, the changes
// of a view are given up: the view is marked stale on disk instead of being wrong, and the
// owner is notified. A crash loses only the last changes: each commit leaves a consistent state.
//
// A Writer is safe for concurrent use. Its tests are in package store, beside the model of views
// that they check against.
package writeback

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// ErrOverflow is the reason if a view's changes were given up because the disk was too slow.
var ErrOverflow = errors.New("too much is waiting for the disk")

// committer is the part of a Store that a Writer uses. HasView is called under a lock, and does no I/O.
type committer interface {
	Commit(store.Batch) error
	HasView(store.ID) bool
}

// Options of a Writer. The zero value is usable.
type Options struct {
	// Interval is the least time between two commits, and how long changes are collected for one:
	// 1 s by default. Changes are collected for 100 ms only if they follow an interval without any
	// (unless further ones come within 100 ms each), and after a view was replaced: a LIST that
	// follows an idle second is soon on disk. If changes never cease, commits are four intervals
	// apart.
	Interval time.Duration
	// MaxPending bounds the bytes that wait for a commit: 32 MiB by default. A running commit
	// may have as many again.
	MaxPending int64
	// Lost is called for a view whose changes were given up, with the reason. The view is then
	// stale on disk, or dropped if it was damaged there, and its changes are ignored until one
	// that replaces or drops it. Lost must not block. It is called by the goroutine of Change,
	// of Run or of Flush.
	Lost func(store.ID, error)
	// Committed is called after each commit, also a failed one.
	Committed func(CommitStats)
}

// CommitStats describes one commit of a Writer.
type CommitStats struct {
	Duration time.Duration
	Err      error // nil if the commit is on disk; else it is tried again
}

// Writer collects changes. Change and Put only take a short lock; Run commits.
type Writer struct {
	opts Options

	// dirty has an element when something is pending. One element is enough: Run takes all changes.
	dirty chan struct{}

	committing sync.Mutex // held during a commit
	store      committer  // is changed under both locks

	mu      sync.Mutex
	next    *pending // collected
	current *pending // in a running commit, or nil; only who holds committing changes it
	lost    map[store.ID]bool
}

// New returns a Writer, which commits nothing until Run is called.
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

// Use sets the store to which everything is committed from now on. Before the first commit it calls prepare, which
// may change what is committed.
func (w *Writer) Use(to committer, prepare func()) {
	w.committing.Lock()
	defer w.committing.Unlock()
	w.mu.Lock()
	w.store = to
	w.mu.Unlock()
	prepare()
}

// Yield forgets the pending values of keys for which has returns true.
func (w *Writer) Yield(has func(table, key string) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, pair := range w.next.pairs {
		if has(k.table, k.key) {
			w.next.bytes -= pairSize(&pair)
			delete(w.next.pairs, k)
		}
	}
}

// Change queues a change. Neither the change nor its bytes may be modified afterwards. Change
// does no I/O. Its only error is ErrInvalid.
//
// The bytes of an object may be nil if the view has it, on disk or by an earlier change.
func (w *Writer) Change(c store.Change) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("collect change: %w", err)
	}
	w.report(w.collect(&c))
	w.wake()
	return nil
}

// Put queues new values of keys, which are never given up. Its only error is ErrInvalid.
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

// Object returns the bytes of a pending object, which must not be modified. Other objects can
// only be in the store, which must be searched after this.
func (w *Writer) Object(k store.ObjectKey) ([]byte, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b, ok := w.next.object(k); ok || w.current == nil {
		return b, ok
	}
	return w.current.object(k)
}

// Get returns the pending value of a key, which is nil if the key is to be deleted. Other keys
// can only be in the store, which must be searched after this.
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

// Pending returns the number of bytes that wait for a commit or are in one.
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

// loss is a view whose changes were given up.
type loss struct {
	id  store.ID
	err error
}

// report calls Options.Lost. w.mu must not be held.
func (w *Writer) report(losses []loss) {
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
	if c.Op == store.Drop && !w.mayBeStoredLocked(c.ID) {
		w.next.remove(c.ID)
		return nil
	}
	if err := w.next.add(c); err != nil {
		return []loss{w.loseLocked(c.ID, err)}
	}
	return w.boundLocked()
}

// mayBeStoredLocked reports whether a view is on disk, or in a running commit. Otherwise there is nothing to drop, and
// a drop would wait for a disk that cannot be written, one for each view that was evicted meanwhile.
func (w *Writer) mayBeStoredLocked(id store.ID) bool {
	return w.current != nil && w.current.views[id] != nil || w.store.HasView(id)
}

// boundLocked gives up views until the pending changes are within their bound.
func (w *Writer) boundLocked() []loss {
	var losses []loss
	for w.next.bytes > w.opts.MaxPending {
		id, ok := w.next.largest()
		if !ok {
			break // only marks and keys are left
		}
		losses = append(losses, w.loseLocked(id, ErrOverflow))
	}
	return losses
}

// loseLocked gives up the changes of a view, and marks it stale.
func (w *Writer) loseLocked(id store.ID, err error) loss {
	w.next.lose(id, store.MarkStale)
	w.lost[id] = true
	return loss{id, err}
}
