package store

// Snapshot takes a snapshot now, as Run does in its time.
func (s *Store) Snapshot() error {
	_, err := s.snapshot(-1)
	return err
}
