package discovery

// Len returns the number of answers.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.answers.Entries)
}
