package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	// firstSnapshot is how long after the start Run takes the first snapshot: by then a node has
	// read what it needs.
	firstSnapshot = 5 * time.Minute
	// soonSnapshot is when Run takes another one before that if the last is too old: a hub that
	// restarts more often than every five minutes needs a snapshot, too. By then kubelet has
	// read its pods.
	soonSnapshot = 30 * time.Second
)

// firstSnapshots returns the times to wait for the first snapshots after a start. However often
// the hub restarts, it takes one only if the last is older than Options.SnapshotEvery.
func (s *Store) firstSnapshots() []time.Duration {
	if info, err := os.Stat(s.dir.file(fileSnapshot)); err == nil {
		// The modification time is in the future if the clock was wrong, then or now. A little
		// is normal for a machine without a battery after each start.
		age := time.Since(info.ModTime())
		if age.Abs() < s.opts.SnapshotEvery {
			return []time.Duration{max(firstSnapshot, s.opts.SnapshotEvery-max(age, 0))}
		}
	}
	soon := min(soonSnapshot, s.opts.SnapshotEvery)
	return []time.Duration{soon, min(firstSnapshot, s.opts.SnapshotEvery) - soon}
}

// Run overwrites what was removed, and takes snapshots, until ctx ends, if anything has changed;
// see Options.SnapshotEvery. It returns ErrDamaged, as soon as any method finds damage, or
// ErrClosed. What fails for any other reason is logged, and done at the next time. Run must have
// returned before Close, and must not be called twice.
func (s *Store) Run(ctx context.Context) error {
	first := s.firstSnapshots()
	s.logUnlessOverwritten(s.overwriteReplaced(ctx)) // by Open
	for taken := -1; ; {
		next := s.opts.SnapshotEvery
		if len(first) > 0 {
			next, first = first[0], first[1:]
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.damaged:
			return *s.damage.Load()
		case <-time.After(next):
		}
		if len(first) > 0 && s.isEmpty() { // soon after the start
			continue // an empty snapshot would count as recent
		}
		at, err := s.tidy(ctx, taken)
		switch {
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrClosed):
			return err
		case err != nil:
			s.log.Warn("cache snapshot was not taken", "error", err)
		default:
			taken = at
		}
	}
}

// tidy overwrites what was removed, and takes a snapshot, which then does not have it either. It
// returns the transaction ID of the snapshot; if that is the given one, it does nothing.
func (s *Store) tidy(ctx context.Context, taken int) (at int, err error) {
	err = s.view(func(tx *bolt.Tx) error { at = tx.ID(); return nil })
	if err != nil || at == taken {
		return at, err
	}
	if err = s.Commit(Batch{}); err == nil { // it removes what was kept for Readers
		err = s.overwriteFree(ctx)
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, ErrClosed) {
		return 0, err
	}
	s.logUnlessOverwritten(err)
	if at, err = s.snapshot(); err == nil {
		s.logUnlessOverwritten(errors.Join(s.discardDamaged(), s.overwriteReplaced(ctx)))
	}
	return at, err
}

func (s *Store) logUnlessOverwritten(err error) {
	if err != nil {
		s.log.Warn("what was removed from the cache may still be on the disk: it could not be overwritten", "folder", s.dir, "error", err)
	}
}

// isEmpty reports whether no view can be read.
func (s *Store) isEmpty() bool {
	views := 0
	_ = s.Views(func(View) error { views++; return nil })
	return views == 0
}

// snapshot writes a copy of the file, which replaces a damaged file. A damaged copy does not
// replace the last one, and shows early that the file itself is damaged. snapshot returns the
// transaction ID of the copy. Only one call may run at a time.
func (s *Store) snapshot() (at int, err error) {
	path := s.dir.file(fileNew)
	defer func() {
		if err != nil {
			os.Remove(path)
			err = fmt.Errorf("snapshot cache: %w", err)
		}
	}()
	if at, err = s.copyTo(path); err != nil {
		return 0, err
	}
	if err := s.codec.checkCopy(path); errors.Is(err, ErrDamaged) {
		return 0, s.marked(&corruption{err}) // the copy was read from damaged pages
	} else if err != nil {
		return 0, s.marked(err)
	}
	// The commit point of a snapshot.
	return at, s.replace(fileNew, fileSnapshot)
}

// copyTo writes and syncs a copy of the file. Commits go on while its transaction is open, and
// use new pages.
func (s *Store) copyTo(path string) (at int, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		at = tx.ID()
		return tx.CopyFile(path, 0o600)
	})
	if err != nil {
		return 0, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	return at, errors.Join(f.Sync(), f.Close())
}
