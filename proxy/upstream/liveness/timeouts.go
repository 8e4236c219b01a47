package liveness

import "time"

// Timeouts are what lines take for silence: see Limits.
type Timeouts struct{ Loss, IdlePing time.Duration }

// pingAfter is the silence after which an apiserver that owes an answer is
// pinged. The rest of Loss is for the ping's round trip: 2.1 s of 2.5 s.
func (t Timeouts) pingAfter() time.Duration { return t.Loss / 6 }

// timerSlack is how late a timer may be. One that is later shows that this process, or
// the machine, stood still: nobody has listened meanwhile.
func (t Timeouts) timerSlack() time.Duration { return t.pingAfter() / 2 }

// deadline is when a silence that began at since is a loss, where a sign of life
// was asked for at asked: that is given its round trip, however late it was.
func (t Timeouts) deadline(since, asked time.Time) time.Time {
	return latest(since.Add(t.Loss), asked.Add(t.Loss-t.pingAfter()))
}
