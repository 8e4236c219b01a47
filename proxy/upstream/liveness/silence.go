package liveness

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Timeouts are the times of silence after which connections act; see upstream.Limits.
type Timeouts struct{ Loss, IdlePing time.Duration }

// pingAfter is the silence after which the apiserver is pinged while a response is pending. The
// rest of Loss is for the ping's round trip: 2.1 s of 2.5 s.
func (t Timeouts) pingAfter() time.Duration { return t.Loss / 6 }

// timerSlack is how late a timer may fire. A later one shows that this process had no CPU, or that
// the machine was suspended.
func (t Timeouts) timerSlack() time.Duration { return t.pingAfter() / 2 }

// maxVoid is how often in a row silence is not taken for a loss because this process got too little
// CPU: whoever can starve it must not hide a loss for ever. With the default of Timeouts.Loss that
// is ackTimeout, within which the kernel, which takes no CPU of this process, gives a dead connection
// up.
const maxVoid = 8

// isStarved reports whether a silence says little: this process was late for a fifth of it or more.
// A ping takes several goroutines, each of which may be as late.
func isStarved(late, silence time.Duration) bool { return late >= silence/5 }

// deadline returns when a silence that began at since is a loss, after a ping at asked, which
// always gets its full round trip.
func (t Timeouts) deadline(since, asked time.Time) time.Time {
	return latest(since.Add(t.Loss), asked.Add(t.Loss-t.pingAfter()))
}

// action is what check does.
type action int

const (
	doNothing action = iota
	pingOwn          // this apiserver, by this connection's transport
	pingEvery        // this apiserver and the others
	closeConn
	waitAgain // as if the silence began now: this process was starved
)

// check pings or closes the connection, depending on how long it has been silent. It first queues
// behind all goroutines that are ready, as the one has to that reads an answer: a timer's goroutine
// goes ahead of them, and would be late only if the whole process were.
func (c *Conn) check() {
	runtime.Gosched()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	now := time.Now()
	since, next := c.checkLocked(now)
	if next != closeConn {
		c.armLocked(now)
	}
	c.mu.Unlock()
	switch next {
	case pingOwn:
		c.owner.ping(since)
	case pingEvery:
		c.conns.pingEvery(since)
	case closeConn:
		c.conns.unresponsive(c, since)
	case waitAgain:
		c.conns.server.Starved(now.Sub(since))
	}
}

// checkLocked decides what check does without the lock. since is when the silence began.
func (c *Conn) checkLocked(now time.Time) (since time.Time, next action) {
	c.late += max(0, now.Sub(c.due))
	if c.waitingSince.IsZero() {
		if c.idleStreams > 0 && !now.Before(c.idlePingDueLocked()) {
			return now, pingOwn
		}
		return now, doNothing
	}
	progress := c.sampleAcksLocked(now)
	since = c.silentSinceLocked()
	switch {
	case c.strict > 0 && !now.Before(c.timeouts.deadline(since, c.asked)):
		if c.voids == maxVoid || !isStarved(c.late, now.Sub(since)) {
			return since, closeConn
		}
		c.voids++
		c.heardLocked(&c.resumed, now)
		return since, waitAgain
	case c.waiting > 0 && !progress && now.Sub(since) >= c.timeouts.pingAfter():
		return since, pingEvery
	}
	return since, doNothing
}

// armLocked sets the timer to the next time at which check has to act.
func (c *Conn) armLocked(now time.Time) {
	switch {
	case !c.waitingSince.IsZero():
		c.due = c.silentSinceLocked().Add(c.timeouts.pingAfter())
	case c.idleStreams > 0:
		c.due = c.idlePingDueLocked()
	default:
		c.stopTimerLocked()
		return
	}
	if !c.due.After(now) {
		c.due = now.Add(c.timeouts.pingAfter())
	}
	if c.strict > 0 {
		if end := c.timeouts.deadline(c.silentSinceLocked(), c.asked); end.Before(c.due) {
			c.due = end
		}
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(c.due.Sub(now), c.check)
	} else {
		c.timer.Reset(c.due.Sub(now))
	}
}

func (c *Conn) stopTimerLocked() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// silentSinceLocked returns when the silence began, while something is pending.
func (c *Conn) silentSinceLocked() time.Time {
	return latest(c.waitingSince, c.lastRead, c.lastAck, c.resumed)
}

// heardLocked has a silence begin anew, at a time that it sets.
func (c *Conn) heardLocked(last *time.Time, at time.Time) { *last, c.late = at, 0 }

// idlePingDueLocked returns when a connection with only idle streams is pinged. One ping is
// enough for all of a transport: by HTTP/1.1 each watch has a connection of its own.
func (c *Conn) idlePingDueLocked() time.Time {
	return latest(c.lastRead, c.owner.lastPing()).Add(c.timeouts.IdlePing)
}

// sampleAcksLocked counts the progress of an upload as activity. Acknowledgements of the last
// bytes do not count: the kernel of a stopped apiserver sends them, too.
func (c *Conn) sampleAcksLocked(now time.Time) (progress bool) {
	acked, waiting := c.backlog()
	progress = waiting && acked > c.acked
	if progress {
		c.heardLocked(&c.lastAck, c.sampled)
	}
	c.acked, c.sampled = acked, now
	return progress
}

func latest(first time.Time, others ...time.Time) time.Time {
	for _, t := range others {
		if t.After(first) {
			first = t
		}
	}
	return first
}

// UnresponsiveError is the reason why an unresponsive connection was closed. It is a net.Error.
type UnresponsiveError struct{ Silence time.Duration }

func (e *UnresponsiveError) Error() string {
	return fmt.Sprintf("no sign of life for %v, though an answer is owed", e.Silence.Round(100*time.Millisecond))
}

// Timeout is for net.Error.
func (e *UnresponsiveError) Timeout() bool { return true }

// Temporary is for net.Error.
func (e *UnresponsiveError) Temporary() bool { return false }

// IsUnresponsive reports whether err, or what it wraps, is an UnresponsiveError.
func IsUnresponsive(err error) bool {
	_, ok := errors.AsType[*UnresponsiveError](err)
	return ok
}
