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
	// firstSnapshot is how long after its start Run takes one, unless it has one that is
	// younger than Options.SnapshotEvery: by then a node has read what it needs.
	firstSnapshot = 5 * time.Minute
	// soonSnapshot is the same where there is none, or one that is older: a hub that
	// restarts more often than every five minutes is to have one, too. It is long enough
	// for kubelet to have read its pods.
	soonSnapshot = 30 * time.Second
)

// nextSnapshots returns the times to wait for snapshots after a start. However often the
// hub restarts, one is written only where the last is older than Options.SnapshotEvery.
func (s *Store) nextSnapshots() []time.Duration {
	age, ok := s.dir.snapshotAge()
	// A modification time in the future shows that the clock was wrong, then or now. A little is what
	// a machine without a battery has after each start.
	if ok && age < s.opts.SnapshotEvery && age > -s.opts.SnapshotEvery {
		return []time.Duration{max(firstSnapshot, s.opts.SnapshotEvery-max(age, 0))}
	}
	soon := min(soonSnapshot, s.opts.SnapshotEvery)
	return []time.Duration{soon, min(firstSnapshot, s.opts.SnapshotEvery) - soon}
}

// snapshotAge is how long ago the snapshot was written; no if there is none.
func (d folder) snapshotAge() (age time.Duration, ok bool) {
	info, err := os.Stat(d.file(fileSnapshot))
	if err != nil {
		return 0, false
	}
	return time.Since(info.ModTime()), true
}

// Run takes a snapshot now and then, if there is anything new, until ctx ends. The first
// one comes soon where there is none that is young: see nextSnapshots.
// It returns ErrDamaged, as soon as anything has met damage, or ErrClosed, after
// which it makes no sense to go on.
// A snapshot that fails for any other reason is logged and tried again next
// time. Wait for Run to return before Close.
func (s *Store) Run(ctx context.Context) error {
	first := s.nextSnapshots()
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
			continue // a snapshot of nothing would count as young when the node has read something
		}
		at, err := s.snapshot(taken)
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

// isEmpty reports whether no view is found.
func (s *Store) isEmpty() bool {
	err := s.Views(func(View) error { return errNotEmpty })
	return !errors.Is(err, errNotEmpty)
}

var errNotEmpty = errors.New("there is a view")

// snapshot writes a copy of the file, from which Open restores a damaged one. A
// copy that is not whole does not take the place of the one before; that the
// file itself is damaged is then known early. It returns the transaction that the
// copy is of. If that is the given one it writes nothing.
func (s *Store) snapshot(taken int) (at int, err error) {
	s.snapshots.Lock()
	defer s.snapshots.Unlock()
	path := s.dir.file(fileNew)
	defer func() {
		if err != nil {
			os.Remove(path)
			err = fmt.Errorf("snapshot cache: %w", err)
		}
	}()
	if at, err = s.copyTo(path, taken); err != nil || at == taken {
		return at, err
	}
	if err := s.codec.checkCopy(path); errors.Is(err, ErrDamaged) {
		return 0, s.marked(&corruption{err}) // the copy was read from damaged pages
	} else if err != nil {
		return 0, s.marked(err)
	}
	// The commit point of a snapshot.
	return at, s.dir.replace(fileNew, fileSnapshot)
}

// copyTo writes the file as of now to path, and syncs it. The transaction is
// held while a file is written, not a client: meanwhile commits go on, and use new pages.
func (s *Store) copyTo(path string, taken int) (at int, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		if at = tx.ID(); at == taken {
			return nil
		}
		return tx.CopyFile(path, 0o600)
	})
	if err != nil || at == taken {
		return at, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	return at, errors.Join(f.Sync(), f.Close())
}
