package upstream

import (
	"sync"
	"time"
)

// Plausible reports whether a clock that is right may have shown t: a node without a
// battery starts in 1970.
func Plausible(t time.Time) bool { return t.Year() >= 2020 }

// outageStart says when an outage began that may have begun before this process.
type outageStart struct {
	recalled time.Time // zero: nothing is known of before
	once     sync.Once
	answered chan struct{} // closed once an apiserver has answered: what was before is over
}

// Recall sets since when the cloud was away, or when it answered last, before this
// process began. Until an apiserver answers, an outage is reported to have begun then. It
// is called before anything else.
func (u *Upstream) Recall(at time.Time) { u.outageStart.recalled = at }

// Answered returns a channel that is closed once any apiserver has answered anything
// useful since the start.
func (u *Upstream) Answered() <-chan struct{} { return u.outageStart.answered }

func (b *outageStart) markAnswered() { b.once.Do(func() { close(b.answered) }) }

// of returns when an outage began that this process has noticed at noticed. A time that
// was recalled counts where the clock makes sense of it: not if it is in the future, as
// all times are before the clock is set.
func (b *outageStart) of(noticed, now time.Time) time.Time {
	select {
	case <-b.answered:
	default:
		if Plausible(b.recalled) && b.recalled.Before(now) {
			return b.recalled
		}
	}
	return onCurrentClock(noticed, now, now.Sub(noticed))
}

// onCurrentClock returns at, which is so long before now by the monotonic clock, as the clock
// shows it that has been set since, if by more than a moment.
func onCurrentClock(at, now time.Time, before time.Duration) time.Time {
	shown := now.Round(0).Add(-before)
	if off := shown.Sub(at.Round(0)); off.Abs() < time.Minute {
		return at
	}
	return shown
}
