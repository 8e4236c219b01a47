package repeat

import "time"

// clock returns times that order what has happened: each is later than the one before, by a microsecond
// or more, also after a restart and where the device's clock was set back. It is not safe for concurrent
// use.
type clock struct {
	at   time.Time // the last time returned
	read time.Time // when that was, with Go's monotonic reading
}

// notBefore makes the clock one that is not behind a time that an earlier one has returned.
func (c *clock) notBefore(t time.Time) {
	if c.now(); t.After(c.at) {
		c.at = t
	}
}

func (c *clock) now() time.Time {
	read := time.Now()
	c.at = c.at.Add(max(read.Sub(c.read), time.Microsecond))
	c.read = read
	if wall := read.Round(0); wall.After(c.at) { // the clock was set, or the device was suspended
		c.at = wall
	}
	return c.at
}
