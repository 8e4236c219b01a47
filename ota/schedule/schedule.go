// Package schedule decides when an upgrade begins: at a time, or in a window of each day.
//
// All of it is a pure function of the time that the caller passes, and looks at nothing but the wall
// clock: the answer follows a clock that is corrected.
package schedule

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// late is how far in the past a time may lie that still means now: the request took a moment, or
	// two clocks differ.
	late = time.Minute
	// ahead is how far in the future a time may lie. More is a wrong year, or a wrong clock.
	ahead = 366 * day

	day = 24 * time.Hour
)

// ParseAt reads a time in the form of RFC 3339. It returns the zero time for one that is past by a
// minute at most, which means now.
func ParseAt(value string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.50q is no time such as 2026-11-22T03:00:00+01:00 (in a URL, + is %%2B)", value)
	}
	clock := now.UTC().Format(time.RFC3339)
	switch wait := at.Sub(now.Round(0)); {
	case wait < -late:
		return time.Time{}, fmt.Errorf("%s is over: this node's clock shows %s", at.Format(time.RFC3339), clock)
	case wait > ahead:
		return time.Time{}, fmt.Errorf("%s is more than a year ahead: this node's clock shows %s", at.Format(time.RFC3339), clock)
	case wait <= 0:
		return time.Time{}, nil
	}
	return at, nil
}

// Window is a part of each day. It may cross midnight. It is open while a clock on the wall shows a
// time in it: if clocks are set forward, it is shorter on that day, or left out; if they are set
// back, it is longer, or open twice.
type Window struct {
	from, to time.Duration // since midnight, from inclusive and to exclusive
	zone     *time.Location
}

// ParseWindow reads a window such as 02:00-05:00. zone is the name of an IANA time zone, or empty for
// the node's own, local.
func ParseWindow(value, zone string, local *time.Location) (Window, error) {
	w := Window{zone: local}
	from, to, ok := strings.Cut(value, "-")
	var errFrom, errTo error
	w.from, errFrom = parseClock(from)
	w.to, errTo = parseClock(to)
	switch {
	case !ok || errors.Join(errFrom, errTo) != nil:
		return Window{}, fmt.Errorf("%.50q is no window such as 02:00-05:00, from 00:00 to 23:59", value)
	case w.from == w.to:
		return Window{}, fmt.Errorf("the window %s is empty: it begins and ends at the same time", value)
	case zone == "":
		return w, nil
	}
	var err error
	if w.zone, err = time.LoadLocation(zone); err != nil {
		return Window{}, fmt.Errorf("%.100q is no time zone that this node knows, such as Europe/Berlin (the package tzdata has them)", zone)
	}
	return w, nil
}

func parseClock(value string) (time.Duration, error) {
	const form = "15:04"
	t, err := time.Parse(form, value)
	if err == nil && len(value) != len(form) { // Parse takes 2:00 too
		err = errors.New("two digits are missing")
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, err
}

// Next returns the first time from now on at which the window is open: now, if it is open now.
func (w Window) Next(now time.Time) time.Time {
	for t := now.Round(0); ; { // the wall clock
		wait := w.until(t)
		_, change := t.In(w.zone).ZoneBounds()
		if next := t.Add(wait).In(w.zone); change.IsZero() || next.Before(change) {
			return next
		}
		t = change // clocks are set before: look again from there
	}
}

// until returns how long the clock runs until the window is open, if it is not set meanwhile.
func (w Window) until(t time.Time) time.Duration {
	t = t.In(w.zone)
	clock := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	since := (clock - w.from + day) % day
	if since < (w.to-w.from+day)%day {
		return 0
	}
	return day - since
}
