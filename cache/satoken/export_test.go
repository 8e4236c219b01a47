package satoken

// Len returns the number of tokens.
func (k *Tokens) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.answers.Entries)
}
