package liveness

import (
	"errors"
	"fmt"
	"time"
)

// Decisions about silence on a connection.

// armLocked sets the timer to the next time at which check has to act.
func (c *Conn) armLocked(now time.Time) {
	switch {
	case !c.waitingSince.IsZero():
		c.due = c.silentSinceLocked().Add(c.probeAfterLocked())
		if !c.due.After(now) {
			c.due = now.Add(c.timeouts.pingAfter())
			if end, judged := c.deadlineLocked(); judged && end.Before(c.due) {
				c.due = end
			}
		}
	case c.idleStreams > 0:
		c.due = latest(c.lastRead, c.pinged).Add(c.timeouts.IdlePing)
	default:
		if c.timer != nil {
			c.timer.Stop()
			c.timer = nil
		}
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(c.due.Sub(now), c.check)
	} else {
		c.timer.Reset(c.due.Sub(now))
	}
}

// silentSinceLocked returns when the silence began; a response must be pending.
func (c *Conn) silentSinceLocked() time.Time { return latest(c.waitingSince, c.lastRead, c.lastAck) }

// probeAfterLocked returns the silence after which the apiserver is pinged, or, somewhat
// sooner, probed.
func (c *Conn) probeAfterLocked() time.Duration {
	if c.http2 == nil {
		return c.timeouts.pingAfter() / 2
	}
	return c.timeouts.pingAfter()
}

// deadlineLocked returns when silence closes the connection, if it does.
func (c *Conn) deadlineLocked() (end time.Time, judged bool) {
	return c.timeouts.deadline(c.silentSinceLocked(), c.pinged), c.pinging || c.strict > 0
}

// check pings or closes the connection, depending on how long it has been silent.
func (c *Conn) check() {
	c.mu.Lock()
	if c.ctx.Err() != nil {
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
	case closeConn:
		c.conns.unresponsive(c, since)
	case probeEveryServer:
		c.conns.probeAll(since)
	case probeServer:
		c.conns.probe(since)
	}
}

// action is what check does.
type action int

const (
	doNothing        action = iota
	probeServer             // probe, because the connection cannot be pinged
	probeEveryServer        // ping or probe this apiserver and the others
	closeConn
)

// checkLocked is evaluateLocked without the time in which this process was suspended. After
// that it waits a moment for bytes that have arrived meanwhile.
func (c *Conn) checkLocked(now time.Time) (since time.Time, next action) {
	moment := c.timeouts.timerSlack()
	if late := now.Sub(c.due); late > moment {
		c.lastAck = latest(c.lastAck, c.silentSinceLocked().Add(late), now.Add(moment-c.timeouts.Loss))
	}
	return c.evaluateLocked(now)
}

// evaluateLocked decides what check does without the lock. It pings a connection that has
// only idle streams itself. since is when the silence began.
func (c *Conn) evaluateLocked(now time.Time) (since time.Time, next action) {
	if c.waitingSince.IsZero() {
		if c.idleStreams == 0 || now.Before(latest(c.lastRead, c.pinged).Add(c.timeouts.IdlePing)) {
			return now, doNothing
		}
		if c.http2 == nil {
			last, due := c.conns.idleProbeDue(now, c.timeouts.IdlePing)
			if c.pinged = last; due {
				return now, probeServer
			}
			return now, doNothing
		}
		c.startWaitingLocked(now)
		c.pingLocked()
		return now, doNothing
	}
	progress := c.sampleAcksLocked(now)
	since = c.silentSinceLocked()
	if end, judged := c.deadlineLocked(); judged && !now.Before(end) {
		return since, closeConn
	}
	probed := c.http2 == nil && c.strict == 0
	if probed {
		since = latest(since, c.pinged) // bytes before the last probe do not answer the next one
	}
	if progress || c.waiting == 0 || now.Sub(since) < c.probeAfterLocked() {
		return since, doNothing
	}
	if probed {
		c.pinged = now
	}
	return since, probeEveryServer
}

// sampleAcksLocked counts the progress of an upload as activity. Acknowledgements of the last
// bytes do not count: the kernel of a stopped apiserver sends them, too.
func (c *Conn) sampleAcksLocked(now time.Time) (progress bool) {
	acked, waiting := c.backlog()
	progress = waiting && acked > c.acked
	if progress {
		c.lastAck = c.sampled
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

// UnresponsiveError is the reason why an unresponsive connection was closed.
type UnresponsiveError struct{ Silence time.Duration }

func (e *UnresponsiveError) Error() string {
	return fmt.Sprintf("no sign of life for %v, though an answer is owed", e.Silence.Round(100*time.Millisecond))
}

// Timeout makes it a net.Error, with Temporary.
func (e *UnresponsiveError) Timeout() bool { return true }

// Temporary is for net.Error.
func (e *UnresponsiveError) Temporary() bool { return false }

// IsUnresponsive reports whether err, or what it wraps, is an UnresponsiveError.
func IsUnresponsive(err error) bool {
	var unresponsive *UnresponsiveError
	return errors.As(err, &unresponsive)
}
