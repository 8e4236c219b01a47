package review

import "time"

// clock is a clock that never goes back. It is not safe for concurrent use.
type clock struct {
	at   time.Time // what it shows
	read time.Time // when it was read last, with Go's monotonic reading
}

// newClock returns a clock that shows no less than a time at which it was read before.
func newClock(before time.Time) *clock {
	now := time.Now()
	c := &clock{at: now.Round(0), read: now}
	if before.After(c.at) {
		c.at = before
	}
	return c
}

// now reads the clock.
func (c *clock) now() time.Time {
	read := time.Now()
	c.at = c.at.Add(max(read.Sub(c.read), 0))
	c.read = read
	if wall := read.Round(0); wall.After(c.at) { // it was set, or the device has slept
		c.at = wall
	}
	return c.at
}
