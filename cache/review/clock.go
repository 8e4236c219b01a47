package review

import "time"

// clock never goes back. It is not safe for concurrent use.
type clock struct {
	at   time.Time // the last time returned
	read time.Time // when that was, with Go's monotonic reading
}

// newClock returns a clock that is not behind a time that an earlier one has returned.
func newClock(before time.Time) *clock {
	now := time.Now()
	c := &clock{at: now.Round(0), read: now}
	if before.After(c.at) {
		c.at = before
	}
	return c
}

func (c *clock) now() time.Time {
	read := time.Now()
	c.at = c.at.Add(max(read.Sub(c.read), 0))
	c.read = read
	if wall := read.Round(0); wall.After(c.at) { // the clock was set, or the device was suspended
		c.at = wall
	}
	return c.at
}
