package writeback

import (
	"context"
	"errors"
	"time"

	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/store"
)

// maxRetry bounds the pause after failed commits, in intervals. A disk that has space again is
// used after that time.
const maxRetry = 8

// settle is how long the first commit after an idle interval waits for further changes. A LIST is
// then on disk within 150 ms, if the disk takes 50 ms of them.
const settle = 100 * time.Millisecond

// busy is how long changes that do not cease are collected at most, in intervals after the one that
// follows a commit. Where the same objects change all the time, their latest state alone is written: with two
// seconds between commits instead of four, twice as much.
const busy = 3

// Run commits changes until ctx ends, and then once more; see Options.Interval. It returns the
// error of that last commit, or ErrClosed if the store cannot be used any more.
// Other errors are reported to Options.Committed, and the commit is tried again.
func (w *Writer) Run(ctx context.Context) error {
	wait := w.opts.Interval // after a commit, in addition to collecting changes
	for {
		if !w.collectUntilDue(ctx) {
			return w.commit()
		}
		err := w.commit()
		switch {
		case errors.Is(err, store.ErrClosed):
			return err
		case err != nil:
			wait = min(2*wait, maxRetry*w.opts.Interval)
			w.wake()
		default:
			wait = w.opts.Interval
		}
		if !pause.Sleep(ctx, wait) {
			return w.commit()
		}
	}
}

// collectUntilDue returns when what is pending is to be committed, or false if ctx ended first. It is
// called an interval after a commit.
func (w *Writer) collectUntilDue(ctx context.Context) bool {
	quiet, latest := w.opts.Interval, busy*w.opts.Interval
	select {
	case <-w.dirty: // something came in the interval
	default:
		quiet, latest = settle, w.opts.Interval
		select {
		case <-ctx.Done():
			return false
		case <-w.dirty:
		}
	}
	due := time.After(latest)
	var settled <-chan time.Time
	for listed := false; ; {
		switch {
		case listed: // later changes do not delay it
		case w.hasList():
			listed, settled = true, time.After(settle)
		default:
			settled = time.After(quiet)
		}
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-settled:
			return true
		case <-w.dirty:
		}
	}
}

// hasList reports whether all members of a view wait for a commit: it was listed.
func (w *Writer) hasList() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next.listed
}

// Flush commits what has been collected so far, without waiting for Run to do so. If that fails, Run
// tries again.
func (w *Writer) Flush() error {
	err := w.commit()
	if err != nil {
		w.wake()
	}
	return err
}

// commit writes all collected changes. If that fails, they are collected again.
func (w *Writer) commit() error {
	w.committing.Lock()
	defer w.committing.Unlock()
	if !w.take() {
		return nil
	}
	start := time.Now()
	err := w.commitCurrent()
	stats := CommitStats{Duration: time.Since(start), Err: err}
	w.report(w.done(err))
	w.opts.Committed(stats)
	return err
}

func (w *Writer) take() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next.empty() {
		return false
	}
	w.current, w.next = w.next, newPending()
	return true
}

// commitCurrent commits w.current. If the store refuses a change, it gives up that view and
// tries again without it; a refused transaction writes nothing, so this costs no sync.
func (w *Writer) commitCurrent() error {
	for {
		// Only who holds committing changes current, so reading it needs no lock.
		err := w.store.Commit(w.current.batch())
		refused, ok := errors.AsType[*store.Error](err)
		if !ok || !w.giveUp(refused) {
			return err
		}
		w.opts.Lost(refused.View, refused.Err)
	}
}

// giveUp removes a refused change from w.current. It returns false if that would not help.
func (w *Writer) giveUp(refused *store.Error) bool {
	op := store.MarkStale
	if errors.Is(refused, store.ErrCorrupt) {
		op = store.Drop
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.current.views[refused.View]
	if v == nil || v.change.Op == store.Drop || v.change.Op == op {
		return false
	}
	w.current.lose(refused.View, op)
	if again := w.next.views[refused.View]; again == nil || again.change.Op == store.Update {
		w.lost[refused.View] = true
		w.next.remove(refused.View)
	}
	return true
}

// done ends a commit. Changes of a failed one are put before those collected meanwhile.
func (w *Writer) done(err error) []loss {
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.current
	w.current = nil
	if err == nil {
		return nil
	}
	refused := failed.follow(w.next)
	w.next = failed
	for id, v := range w.next.views {
		if v.change.Op == store.Drop && !w.mayBeStoredLocked(id) {
			w.next.remove(id)
		}
	}
	var losses []loss
	for _, id := range refused {
		losses = append(losses, w.loseLocked(id, store.ErrConflict))
	}
	return append(losses, w.boundLocked()...)
}
