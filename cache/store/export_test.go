package store

import (
	"errors"
	"fmt"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// snapshots is held while Snapshot writes one. In the product only Run does, one at a time.
var snapshots sync.Mutex

// Snapshot takes a snapshot now, as Run does from time to time.
func (s *Store) Snapshot() error {
	snapshots.Lock()
	defer snapshots.Unlock()
	_, err := s.snapshot(-1)
	return err
}

// Check reads all of the store, and returns all errors that it finds: damage, wrong reference
// counts, and tables that differ from their tallies. Commits wait meanwhile.
func (s *Store) Check() error {
	s.write.Lock() // the pages must not change while they are read
	defer s.write.Unlock()
	if s.closed {
		return ErrClosed
	}
	err := checkPages(s.dir.file(fileMain), true)
	if err == nil {
		err = guarded(func() error {
			return s.db.View(func(tx *bolt.Tx) error { return errors.Join(s.codec.check(tx), s.codec.checkTallies(tx)) })
		})
	}
	if err != nil {
		return fmt.Errorf("check cache: %w", err)
	}
	return nil
}

// checkTallies compares all tables with their tallies.
func (c codec) checkTallies(tx *bolt.Tx) error {
	all, err := c.tableTallies(tx)
	wrong := []error{err}
	for name := range all {
		wrong = append(wrong, c.checkTally(tx, all, name))
	}
	return errors.Join(wrong...)
}
