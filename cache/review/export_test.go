package review

// Len returns the number of answers.
func (k *Reviews) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.answers.Entries)
}
