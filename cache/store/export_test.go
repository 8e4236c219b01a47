package store

import (
	"context"
	"sync"

	bolt "go.etcd.io/bbolt"
)

// snapshots is held while Snapshot takes one. In the product only Run does, one at a time.
var snapshots sync.Mutex

// Snapshot overwrites what was removed, and takes a snapshot now, as Run does from time to time.
func (s *Store) Snapshot() error {
	snapshots.Lock()
	defer snapshots.Unlock()
	_, err := s.tidy(context.Background(), -1)
	return err
}

// Overwrite overwrites the free pages now.
func (s *Store) Overwrite() error { return s.overwriteFree(context.Background()) }

// View runs fn in a read transaction.
func (s *Store) View(fn func(*bolt.Tx) error) error { return s.view(fn) }

// WaitsForReaders reports whether Overwrite waits for read transactions to end.
func (s *Store) WaitsForReaders() bool {
	if !s.reading.TryRLock() {
		return true
	}
	s.reading.RUnlock()
	return false
}
