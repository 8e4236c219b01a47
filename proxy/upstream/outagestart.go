package upstream

import (
	"sync"
	"time"
)

// Plausible reports whether t may come from a correct clock: a node without a clock battery
// boots in 1970.
func Plausible(t time.Time) bool { return t.Year() >= 2020 }

// outageStart determines when an outage began, perhaps before this process.
type outageStart struct {
	recalled time.Time // zero: unknown
	once     sync.Once
	answered chan struct{} // closed once an apiserver has answered: recalled is obsolete
}

// Recall sets since when the cloud was away, or when it answered last, before this process
// started. Until an apiserver answers, that is reported as the start of the outage. Recall
// must be called first.
func (u *Upstream) Recall(at time.Time) { u.outageStart.recalled = at }

// Answered returns a channel that is closed once any apiserver has answered anything
// useful since the start.
func (u *Upstream) Answered() <-chan struct{} { return u.outageStart.answered }

func (b *outageStart) markAnswered() { b.once.Do(func() { close(b.answered) }) }

// of returns the start of an outage that this process noticed at noticed. It ignores a recalled
// time in the future: the clock may not be set yet.
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

// onCurrentClock returns at, a time before now by the monotonic clock, corrected if the wall
// clock was set by more than a minute since.
func onCurrentClock(at, now time.Time, before time.Duration) time.Time {
	shown := now.Round(0).Add(-before)
	if off := shown.Sub(at.Round(0)); off.Abs() < time.Minute {
		return at
	}
	return shown
}
