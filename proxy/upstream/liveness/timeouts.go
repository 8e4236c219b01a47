package liveness

import "time"

// Timeouts are the times of silence after which connections act; see upstream.Limits.
type Timeouts struct{ Loss, IdlePing time.Duration }

// pingAfter is the silence after which a connection with a pending response is pinged. The
// rest of Loss is for the ping's round trip: 2.1 s of 2.5 s.
func (t Timeouts) pingAfter() time.Duration { return t.Loss / 6 }

// timerSlack is how late a timer may fire. A later one shows that this process, or the
// machine, was suspended.
func (t Timeouts) timerSlack() time.Duration { return t.pingAfter() / 2 }

// deadline returns when a silence that began at since is a loss, after a ping or probe at
// asked, which always gets its full round trip.
func (t Timeouts) deadline(since, asked time.Time) time.Time {
	return latest(since.Add(t.Loss), asked.Add(t.Loss-t.pingAfter()))
}
