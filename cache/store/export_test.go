package store

// Rewrite writes the log anew now, as Run does from time to time.
func (s *Store) Rewrite() error {
	s.write.Lock()
	s.changed = true
	s.write.Unlock()
	return s.tidy()
}
