package proxy

import (
	"errors"
	"fmt"
	"time"
)

// What a line makes of silence.

// armLocked sets the timer to when check has something to do.
func (l *line) armLocked(now time.Time) {
	switch {
	case !l.owedSince.IsZero():
		l.due = l.clockLocked().Add(l.doubtAfterLocked())
		if !l.due.After(now) {
			l.due = now.Add(l.limits.pingAfter())
			if end, judged := l.deadlineLocked(); judged && end.Before(l.due) {
				l.due = end
			}
		}
	case l.open > 0:
		l.due = latest(l.read, l.pinged).Add(l.limits.IdlePing)
	default:
		if l.timer != nil {
			l.timer.Stop()
			l.timer = nil
		}
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(l.due.Sub(now), l.check)
	} else {
		l.timer.Reset(l.due.Sub(now))
	}
}

// clockLocked is when the silence began, of a line that owes something.
func (l *line) clockLocked() time.Time { return latest(l.owedSince, l.read, l.moved) }

// doubtAfterLocked is the silence after which the apiserver is asked for a sign
// of life. Where that takes a probe instead of a ping, it is asked sooner.
func (l *line) doubtAfterLocked() time.Duration {
	if l.http2 == nil {
		return l.limits.pingAfter() / 2
	}
	return l.limits.pingAfter()
}

// deadlineLocked is when the line is given up, if it is judged at all.
func (l *line) deadlineLocked() (end time.Time, judged bool) {
	return l.limits.deadline(l.clockLocked(), l.pinged), l.pinging || l.strict > 0
}

// check looks at the silence, and pings, or gives the line up.
func (l *line) check() {
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	since, next := l.lookLocked(now)
	if next != giveLineUp {
		l.armLocked(now)
	}
	l.mu.Unlock()
	switch next {
	case giveLineUp:
		l.lines.silent(l, since)
	case askAll:
		l.lines.askAll(since)
	case askServer:
		l.lines.ask(since)
	}
}

// verdict is what a look at a line's silence comes to.
type verdict int

const (
	leaveAlone verdict = iota
	askServer          // a probe, beside a line that cannot be pinged
	askAll             // this apiserver, this line among its own, and the others
	giveLineUp
)

// lookLocked is judgeLocked, but does not count the time in which this process
// stood still itself, and listens a moment for what has come meanwhile.
func (l *line) lookLocked(now time.Time) (since time.Time, next verdict) {
	moment := l.limits.moment()
	if late := now.Sub(l.due); late > moment {
		l.moved = latest(l.moved, l.clockLocked().Add(late), now.Add(moment-l.limits.Loss))
	}
	return l.judgeLocked(now)
}

// judgeLocked pings a line with nothing but idle streams. The rest is left to
// check, without the lock. since is when the silence began.
func (l *line) judgeLocked(now time.Time) (since time.Time, next verdict) {
	if l.owedSince.IsZero() {
		if l.open == 0 || now.Before(latest(l.read, l.pinged).Add(l.limits.IdlePing)) {
			return now, leaveAlone
		}
		if l.http2 == nil {
			last, due := l.lines.probeIdle(now, l.limits.IdlePing)
			if l.pinged = last; due {
				return now, askServer
			}
			return now, leaveAlone
		}
		l.oweLocked(now)
		l.pingLocked()
		return now, leaveAlone
	}
	progress := l.sampleLocked(now)
	since = l.clockLocked()
	if end, judged := l.deadlineLocked(); judged && !now.Before(end) {
		return since, giveLineUp
	}
	probed := l.http2 == nil && l.strict == 0
	if probed {
		since = latest(since, l.pinged) // what was heard before the last probe is no answer to the next
	}
	if progress || l.waiting == 0 || now.Sub(since) < l.doubtAfterLocked() {
		return since, leaveAlone
	}
	if probed {
		l.pinged = now
	}
	return since, askAll
}

// sampleLocked takes progress of a backlog for a sign of life. What was sent last
// proves nothing: the kernel of an apiserver that is stopped acknowledges it, too.
func (l *line) sampleLocked(now time.Time) (progress bool) {
	acked, waiting := l.backlog()
	progress = waiting && acked > l.acked
	if progress {
		l.moved = l.sampled
	}
	l.acked, l.sampled = acked, now
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

// silentError is why a line was given up.
type silentError struct{ lasted time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("no sign of life for %v, though an answer is owed", e.lasted.Round(100*time.Millisecond))
}

// Timeout and Temporary make it a net.Error.
func (e *silentError) Timeout() bool   { return true }
func (e *silentError) Temporary() bool { return false }

func isSilent(err error) bool {
	var silent *silentError
	return errors.As(err, &silent)
}
