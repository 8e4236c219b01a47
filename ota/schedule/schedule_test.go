package schedule

import (
	"strings"
	"testing"
	"time"
)

func TestParseAt(t *testing.T) {
	now := time.Date(2026, 11, 22, 1, 0, 0, 500, time.UTC)
	for name, tt := range map[string]struct {
		value string
		want  time.Time // zero: now
		err   string
	}{
		"a time to come":                        {"2026-11-22T03:00:00+01:00", time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC), ""},
		"a year ahead":                          {"2027-11-22T01:00:00Z", time.Date(2027, 11, 22, 1, 0, 0, 0, time.UTC), ""},
		"this very moment":                      {"2026-11-22T01:00:00Z", time.Time{}, ""},
		"a minute ago is now":                   {"2026-11-22T00:59:01Z", time.Time{}, ""},
		"more than a minute ago":                {"2026-11-22T00:59:00Z", time.Time{}, "is over: this node's clock shows 2026-11-22T01:00:00Z"},
		"more than a year ahead":                {"2028-01-01T00:00:00Z", time.Time{}, "more than a year ahead: this node's clock shows 2026-11-22T01:00:00Z"},
		"the hour, but no date":                 {"03:00", time.Time{}, "is no time such as"},
		"no time zone":                          {"2026-11-22T03:00:00", time.Time{}, "is no time such as"},
		"a plus that became a space on its way": {"2026-11-22T03:00:00 01:00", time.Time{}, "+ is %2B"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAt(tt.value, now)
			checkError(t, err, tt.err)
			if !got.Equal(tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestParseWindow(t *testing.T) {
	for name, tt := range map[string]struct{ window, zone, err string }{
		"a night":                      {"02:00-05:00", "", ""},
		"across midnight":              {"22:30-05:00", "Europe/Berlin", ""},
		"until midnight":               {"22:00-00:00", "", ""},
		"empty":                        {"02:00-02:00", "", "is empty"},
		"no end":                       {"02:00", "", "is no window such as"},
		"an hour that no clock shows":  {"02:00-24:00", "", "from 00:00 to 23:59"},
		"one digit":                    {"2:00-5:00", "", "is no window such as"},
		"with spaces":                  {"02:00 - 05:00", "", "is no window such as"},
		"seconds":                      {"02:00:00-05:00:00", "", "is no window such as"},
		"a time zone that is none":     {"02:00-05:00", "Mars/Base", "no time zone that this node knows"},
		"a file that is no time zone":  {"02:00-05:00", "../../../etc/passwd", "no time zone that this node knows"},
		"an offset that is not a name": {"02:00-05:00", "+01:00", "no time zone that this node knows"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseWindow(tt.window, tt.zone, time.UTC)
			checkError(t, err, tt.err)
		})
	}
}

// In Berlin, clocks went from 02:00 to 03:00 on 29 March 2026, and from 03:00 to 02:00 on
// 25 October 2026. In Lord Howe they go by half an hour, and in Apia the whole of
// 30 December 2011 was left out.
func TestNext(t *testing.T) {
	for name, tt := range map[string]struct{ window, zone, now, want string }{
		"it is open":                   {"02:00-05:00", "", "2026-11-22T03:00:00Z", "2026-11-22T03:00:00Z"},
		"it opens at its first moment": {"02:00-05:00", "", "2026-11-22T02:00:00Z", "2026-11-22T02:00:00Z"},
		"it is closed at its last":     {"02:00-05:00", "", "2026-11-22T05:00:00Z", "2026-11-23T02:00:00Z"},
		"later today":                  {"02:00-05:00", "", "2026-11-22T01:59:59.5Z", "2026-11-22T02:00:00Z"},
		"tomorrow":                     {"02:00-05:00", "", "2026-11-22T12:00:00Z", "2026-11-23T02:00:00Z"},

		"before midnight, of one that crosses it": {"22:00-05:00", "", "2026-11-22T23:00:00Z", "2026-11-22T23:00:00Z"},
		"after midnight, of one that crosses it":  {"22:00-05:00", "", "2026-11-22T04:59:59Z", "2026-11-22T04:59:59Z"},
		"between, of one that crosses midnight":   {"22:00-05:00", "", "2026-11-22T05:00:00Z", "2026-11-22T22:00:00Z"},
		"until midnight, at midnight":             {"22:00-00:00", "", "2026-11-22T00:00:00Z", "2026-11-22T22:00:00Z"},
		"in another zone":                         {"02:00-05:00", "Asia/Tokyo", "2026-11-22T12:00:00Z", "2026-11-22T17:00:00Z"},

		"its beginning is skipped":             {"02:00-05:00", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"},
		"its end is skipped":                   {"01:30-02:30", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29T23:30:00Z"},
		"all of it is skipped":                 {"02:15-02:45", "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-30T00:15:00Z"},
		"it is after the skipped hour":         {"04:00-05:00", "Europe/Berlin", "2026-03-28T20:00:00Z", "2026-03-29T02:00:00Z"},
		"it is repeated: the first time":       {"02:15-02:45", "Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25T00:15:00Z"},
		"it is repeated: the second time":      {"02:15-02:45", "Europe/Berlin", "2026-10-25T00:45:00Z", "2026-10-25T01:15:00Z"},
		"it is repeated: after the second":     {"02:15-02:45", "Europe/Berlin", "2026-10-25T01:45:00Z", "2026-10-26T01:15:00Z"},
		"it is open through the repeated hour": {"02:00-05:00", "Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:30:00Z"},
		"it is after the repeated hour":        {"04:00-05:00", "Europe/Berlin", "2026-10-24T20:00:00Z", "2026-10-25T03:00:00Z"},
		"half an hour is skipped":              {"02:10-02:40", "Australia/Lord_Howe", "2026-10-03T15:00:00Z", "2026-10-03T15:30:00Z"},
		"a day is left out":                    {"02:00-05:00", "Pacific/Apia", "2011-12-29T20:00:00Z", "2011-12-30T12:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWindow(tt.window, tt.zone, time.UTC)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.Next(parse(t, tt.now)).UTC(); !got.Equal(parse(t, tt.want)) {
				t.Errorf("after %s: got %s, want %s", tt.now, got.Format(time.RFC3339Nano), tt.want)
			}
		})
	}
}

// Minute by minute over both changes of a year, Next agrees with what a clock on the wall shows.
func TestNextAgreesWithTheClockOnTheWall(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, window := range []string{"02:00-05:00", "02:15-02:45", "01:30-02:30", "22:00-02:30", "00:00-23:59"} {
		w, err := ParseWindow(window, "", berlin)
		if err != nil {
			t.Fatal(err)
		}
		from, to, _ := strings.Cut(window, "-")
		open := func(t time.Time) bool {
			clock := t.In(berlin).Format("15:04")
			if from < to {
				return clock >= from && clock < to
			}
			return clock >= from || clock < to
		}
		for _, day := range []string{"2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"} {
			began := parse(t, day)
			next := began.Add(72 * time.Hour)
			for !open(next) {
				next = next.Add(time.Minute)
			}
			for now := began.Add(72 * time.Hour); !now.Before(began); now = now.Add(-time.Minute) {
				if open(now) {
					next = now
				}
				if got := w.Next(now); !got.Equal(next) {
					t.Fatalf("window %s at %s: got %s, want %s", window, now.In(berlin), got.In(berlin), next.In(berlin))
				}
			}
		}
	}
}

func parse(t *testing.T, value string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func checkError(t *testing.T, err error, says string) {
	t.Helper()
	switch {
	case says == "" && err != nil:
		t.Fatal(err)
	case says != "" && (err == nil || !strings.Contains(err.Error(), says)):
		t.Fatalf("got error %v, want one that says %q", err, says)
	}
}
