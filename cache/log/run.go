package log

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/cache/pause"
)

const (
	// firstReopen and lastReopen are the first and the longest pause between attempts to open the file.
	firstReopen = 2 * time.Second
	lastReopen  = time.Minute
	// interval is the least time between two commits. Changes are collected for one until there was none for as long, but at
	// most for busy more: where the same rows change all the time, their latest state alone is written.
	interval = time.Second
	busy     = 3 * interval
	// shortInterval takes the place of interval for changes that follow an idle interval, and once all rows of a table were put: a LIST
	// that follows an idle second is on disk within 150 ms, if the disk takes 50 ms of them.
	shortInterval = 100 * time.Millisecond
	// maxRetry bounds the pause after failed commits. A disk that has space again is used after that time.
	maxRetry = 8 * interval
	// maxWait is how long PutLater's changes wait at most.
	maxWait = 5 * time.Minute
)

// Run writes what is put, and replaces the file from time to time, until ctx ends; then it writes what waits, and closes
// the log. The error is that of the last commit, or of closing; others are logged, and what failed is tried again.
//
// If the file is not open, Run tries to open it. Then memory is the truth, and written to a new file, unless
// State.IsEmpty. After each attempt it calls attempted with the error; replayed reports whether the state was read from the
// file, and not written from memory. attempted may read and put, but not wait for a commit.
func (l *Log) Run(ctx context.Context, attempted func(replayed bool, err error)) error {
	if !l.openLate(ctx, attempted) {
		return l.Trouble()
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.commits(ctx) })
	g.Go(func() error {
		l.maintain(ctx)
		return nil
	})
	return errors.Join(g.Wait(), l.Close())
}

// openLate tries to open the file until it is open. It returns false when ctx has ended.
func (l *Log) openLate(ctx context.Context, attempted func(replayed bool, err error)) bool {
	for wait := firstReopen; ; wait = min(2*wait, lastReopen) {
		if l.reopen(attempted) == nil {
			return true
		}
		l.log.Error("cache cannot be opened; what is read is kept in memory only, and it is tried again", "folder", l.dir, "in", wait, "err", l.Trouble())
		if !pause.Sleep(ctx, wait) {
			return false
		}
	}
}

func (l *Log) reopen(attempted func(replayed bool, err error)) error {
	l.write.Lock()
	defer l.write.Unlock()
	if l.file != nil {
		return nil
	}
	replay := l.state.IsEmpty()
	err := l.openLocked(replay)
	attempted(replay && err == nil, err)
	switch {
	case err != nil:
		return err
	case replay:
		l.log.Info("cache is open, and is read", "folder", l.dir)
	default:
		l.log.Warn("cache is open; it begins anew with what was read meanwhile, and the rest is read again from the cloud", "folder", l.dir)
	}
	return nil
}

// commits commits what waits until ctx ends, and then once more.
func (l *Log) commits(ctx context.Context) error {
	wait := interval // after a commit, in addition to collecting changes
	for {
		if !l.collectUntilDue(ctx) {
			return l.commit()
		}
		if err := l.commit(); err != nil {
			l.log.Warn("cache could not be written; what is new stays in memory, and is tried again", "folder", l.dir, "err", err)
			wait = min(2*wait, maxRetry)
			wake(l.dirty)
		} else {
			wait = interval
		}
		if !pause.Sleep(ctx, wait) {
			return l.commit()
		}
	}
}

// collectUntilDue returns when what waits is to be committed, or false if ctx ended first. It is called an
// interval after a commit.
func (l *Log) collectUntilDue(ctx context.Context) bool {
	quiet, latest := interval, busy
	select {
	case <-l.dirty: // something came in the interval
	default:
		quiet, latest = shortInterval, interval
		if ended, overdue := l.awaitDirty(ctx); ended || overdue {
			return !ended
		}
	}
	due := time.After(latest)
	var calm <-chan time.Time
	for listed := false; ; {
		switch {
		case listed: // later changes do not delay it
		case l.isListed():
			listed, calm = true, time.After(shortInterval)
		default:
			calm = time.After(quiet)
		}
		select {
		case <-ctx.Done():
			return false
		case <-due:
			return true
		case <-calm:
			return true
		case <-l.dirty:
		}
	}
}

// awaitDirty returns when something waits that must not wait longer, when what may wait is overdue, or when ctx has ended.
func (l *Log) awaitDirty(ctx context.Context) (ended, overdue bool) {
	var due <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return true, false
		case <-l.dirty:
			return false, false
		case <-due:
			return false, true
		case <-l.waits:
			if due == nil {
				due = time.After(maxWait)
			}
		}
	}
}

// isListed reports whether all rows of a table wait for a commit.
func (l *Log) isListed() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.next.listed
}

const (
	// checkEvery is how often Run looks at the age of files.
	checkEvery = time.Minute
	// maxAge is how old a file becomes in which something is that was deleted.
	maxAge = 24 * time.Hour
	// soon is how long after the start a file is replaced for its age at the earliest: by then a node has read what
	// it needs.
	soon = 5 * time.Minute
	// retryRewrite is how long after a failed attempt a file is replaced at the earliest.
	retryRewrite = 10 * time.Minute
)

// maintain replaces the file when it should be, and erases old ones, until ctx ends.
func (l *Log) maintain(ctx context.Context) {
	started := time.Now()
	for {
		grown := false
		select {
		case <-ctx.Done():
			return
		case <-l.grown:
			grown = true
		case <-l.look:
		case <-time.After(checkEvery):
		}
		err := error(nil)
		if l.shouldReplace(grown, time.Since(started)) {
			if err = l.rewrite(); err != nil {
				l.write.Lock()
				l.retry = time.Now().Add(retryRewrite)
				l.write.Unlock()
			}
			err = errors.Join(err, l.dir.discard(false))
		}
		if err = errors.Join(err, l.sweep()); err != nil {
			l.log.Warn("cache could not be written anew; what was deleted may still be on the disk", "folder", l.dir, "err", err)
		}
	}
}

// shouldReplace reports whether the file should be replaced: something in it is damaged, much of it is not
// needed, or something that was deleted has been in it for long. A file from the future shows that a clock was wrong.
func (l *Log) shouldReplace(grown bool, running time.Duration) bool {
	l.write.Lock()
	defer l.write.Unlock()
	f := l.file
	if f == nil || f.readOnly || time.Now().Before(l.retry) {
		return false
	}
	if grown {
		f.needed = l.measure(f)
	}
	l.mu.RLock()
	unsound := f.unsound
	l.mu.RUnlock()
	return unsound || l.hasGrown(f) || f.garbage && time.Since(f.created) >= maxAge && running >= soon
}
