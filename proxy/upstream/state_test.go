package upstream

import (
	"testing"
	"time"
)

// The clock of a node without a battery says 1970 until somebody has set it.
func TestWhenAnOutageBegan(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	noticed := now.Add(-time.Minute)
	early := time.Date(1970, 1, 1, 0, 1, 0, 0, time.UTC)
	tests := map[string]struct {
		recalled, noticed, now time.Time
		answered               bool
		want                   time.Time
	}{
		"nothing is known of before":       {time.Time{}, noticed, now, false, noticed},
		"it began before the start":        {now.Add(-time.Hour), noticed, now, false, now.Add(-time.Hour)},
		"and ended since":                  {now.Add(-time.Hour), noticed, now, true, noticed},
		"it was noted in 1970":             {early, noticed, now, false, noticed},
		"the clock says 1970 now":          {now.Add(-time.Hour), early, early.Add(time.Minute), false, early},
		"it was noted in a year to come":   {now.AddDate(20, 0, 0), noticed, now, false, noticed},
		"the clock is set after the start": {now.Add(-time.Hour), early, now, false, now.Add(-time.Hour)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := outageStart{recalled: tt.recalled, answered: make(chan struct{})}
			if tt.answered {
				b.markAnswered()
			}
			if got := b.of(tt.noticed, tt.now); !got.Equal(tt.want) {
				t.Errorf("%v, want %v", got, tt.want)
			}
		})
	}
}

// A clock that is set during the outage changes what the time of its beginning is called.
func TestABeginningIsShownOnTheClockOfNow(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	if got := onCurrentClock(at, at.Add(time.Hour), time.Hour); got != at {
		t.Errorf("%v became %v though nobody set the clock", at, got)
	}
	early := time.Date(1970, 1, 1, 0, 1, 0, 0, time.UTC)
	if got := onCurrentClock(early, at.Add(time.Hour), time.Hour); !got.Equal(at) {
		t.Errorf("%v became %v, want %v", early, got, at)
	}
}
