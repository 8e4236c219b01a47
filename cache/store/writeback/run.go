package writeback

import (
	"context"
	"errors"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// maxRetry bounds the wait after commits that failed, in intervals: a disk that
// has space again is used within so many seconds.
const maxRetry = 8

// Run commits what is collected until ctx ends, and then once more; see
// Options.Interval. It returns ErrDamaged or ErrClosed of the store when the store
// cannot be used any more, and the error of the last commit; a commit that
// fails for another reason is reported to Options.Committed and tried again.
func (w *Writer) Run(ctx context.Context) error {
	pause := w.opts.Interval // after a commit, besides the time that changes are collected
	var rested <-chan time.Time
	for {
		if rested != nil {
			select {
			case <-ctx.Done():
				return w.commit()
			case <-rested:
			}
		}
		select {
		case <-ctx.Done():
			return w.commit()
		case <-w.dirty:
		}
		select {
		case <-ctx.Done():
			return w.commit()
		case <-time.After(w.opts.Interval):
		}
		err := w.commit()
		switch {
		case errors.Is(err, store.ErrDamaged), errors.Is(err, store.ErrClosed):
			return err
		case err != nil:
			pause = min(2*pause, maxRetry*w.opts.Interval)
			w.wake()
		default:
			pause = w.opts.Interval
		}
		rested = time.After(pause)
	}
}

// commit writes all that is collected. If that fails it is collected again.
func (w *Writer) commit() error {
	if !w.take() {
		return nil
	}
	start := time.Now()
	stats := CommitStats{}
	stats.Err = w.commitCurrent(&stats)
	stats.Duration = time.Since(start)
	w.tell(w.done(stats.Err))
	w.opts.Committed(stats)
	return stats.Err
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

// commitCurrent commits what take has taken. A change that the store refuses
// does not keep the others from the disk: its view is given up. A transaction that is
// refused writes nothing, so trying again costs no sync.
func (w *Writer) commitCurrent(stats *CommitStats) error {
	for {
		// Only this goroutine changes current, so reading it needs no lock.
		batch := w.current.batch()
		stats.Bytes, stats.Views = w.current.bytes, len(batch.Changes)
		err := w.store.Commit(batch)
		var refused *store.Error
		if err == nil || errors.Is(err, store.ErrDamaged) || !errors.As(err, &refused) || !w.giveUp(refused) {
			return err
		}
		w.opts.Lost(refused.View, refused.Err)
	}
}

// giveUp takes a refused change out of what is being committed. It says no if
// that would not help.
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

// done ends a commit: what failed goes before what came meanwhile.
func (w *Writer) done(err error) []loss {
	w.mu.Lock()
	defer w.mu.Unlock()
	failed := w.current
	w.current = nil
	if err == nil {
		return nil
	}
	var losses []loss
	refused := failed.follow(w.next)
	w.next = failed
	for _, id := range refused {
		losses = append(losses, w.loseLocked(id, store.MarkStale, store.ErrConflict))
	}
	return append(losses, w.boundLocked()...)
}
