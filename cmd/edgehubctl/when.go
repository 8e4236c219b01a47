package main

import (
	"net/url"
	"time"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
)

// when are the flags for when an upgrade begins.
type when struct{ at, window, timeZone string }

func (w when) later() bool { return w.at != "" || w.window != "" }

// check leaves it to the hub whether a time is past, and whether there is such a window: its clock and its
// time zones count.
func (w when) check(now time.Time) error {
	switch {
	case w.at != "" && w.window != "":
		return cli.WrongUse("--at and --window are two answers to one question: give one")
	case w.timeZone != "" && w.window == "":
		return cli.WrongUse("--tz is that of --window: add --window, or leave it out")
	case w.at != "":
		_, err := w.time(now)
		return err
	}
	return nil
}

// time returns --at, and the next such time for HH:MM, in the time zone of now.
func (w when) time(now time.Time) (time.Time, error) {
	const clock = "15:04"
	if t, err := time.Parse(clock, w.at); err == nil && len(w.at) == len(clock) {
		return next(t.Hour(), t.Minute(), now), nil
	}
	t, err := time.Parse(time.RFC3339, w.at)
	if err != nil {
		return t, cli.WrongUse("--at=%.50q: want 03:00, for the next 03:00 here, or a time such as 2026-11-22T03:00:00+01:00", w.at)
	}
	return t, nil
}

// next returns when the clock shows hour and minute next. On a day on which it is set forward past that time,
// it returns a time as long after midnight.
func next(hour, minute int, now time.Time) time.Time {
	for day := now.Day(); ; day++ {
		t := time.Date(now.Year(), now.Month(), day, hour, minute, 0, 0, now.Location())
		// A clock that is set back shows it twice, and time.Date returns either.
		for _, t := range []time.Time{t.Add(-time.Hour), t, t.Add(time.Hour)} {
			if t.After(now) && t.Hour() == hour && t.Minute() == minute {
				return t
			}
		}
		if t.After(now) {
			return t
		}
	}
}

// query returns the parameters of the request for an upgrade, or of one for a rollback. check has passed.
func (c *call) query(now time.Time) url.Values {
	q := url.Values{}
	set := func(param, value string) {
		if value != "" {
			q.Set(param, value)
		}
	}
	if c.when.at != "" {
		t, _ := c.when.time(now) // check has parsed it
		set(api.AtParam, t.Format(time.RFC3339))
	}
	set(api.WindowParam, c.when.window)
	set(api.TimeZoneParam, c.when.timeZone)
	if c.force {
		set(api.ForceParam, "true")
	}
	return q
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}
