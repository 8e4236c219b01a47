package store

import "sync"

// snapshots is held while Snapshot writes one. In the product only Run does, one at a time.
var snapshots sync.Mutex

// Snapshot takes a snapshot now, as Run does from time to time.
func (s *Store) Snapshot() error {
	snapshots.Lock()
	defer snapshots.Unlock()
	_, err := s.snapshot(-1)
	return err
}
