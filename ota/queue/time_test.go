package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestAtATime(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		at := time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)
		if u := r.add(pod, ota.When{At: at}); u.State != api.Scheduled || !u.Next.Equal(at) {
			t.Errorf("got %+v, want Scheduled for %s", u, at)
		}
		r.wait(3*time.Hour - time.Second)
		r.deleted()
		r.wait(time.Second + spread)
		r.deleted(pod)
	})
}

// Many nodes have the same window: they do not ask the cloud in the same second.
func TestManyNodesDoNotBeginAtOnce(t *testing.T) {
	in(t, func(t *testing.T, r *rig) {
		it, err := newItem(entry{Upgrade: api.Upgrade{Window: "02:00-05:00", TimeZone: "UTC"}})
		if err != nil {
			t.Fatal(err)
		}
		r.wait(time.Hour)
		waits := map[time.Duration]bool{}
		for range 100 {
			wait := it.wait(r.now())
			if wait < time.Hour || wait >= time.Hour+spread {
				t.Errorf("it waits %s, an hour before its window", wait)
			}
			waits[wait] = true
		}
		if len(waits) < 50 {
			t.Errorf("of 100 nodes, all begin at %d times", len(waits))
		}
	})
}

// A time that passes while the cloud is away, or the node is off, is caught up on; a window is not.
func TestWhatIsMissed(t *testing.T) {
	for name, tt := range map[string]struct {
		when ota.When
		back time.Duration // after midnight
		want time.Duration // after midnight: when it is carried out
	}{
		"a time":                   {ota.When{At: time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)}, 10 * time.Hour, 10 * time.Hour},
		"a window that is over":    {ota.When{Window: "02:00-05:00", TimeZone: "UTC"}, 10 * time.Hour, 26 * time.Hour},
		"a window that is open":    {ota.When{Window: "02:00-05:00", TimeZone: "UTC"}, 4 * time.Hour, 4 * time.Hour},
		"a window in another zone": {ota.When{Window: "02:00-05:00", TimeZone: "Europe/Berlin"}, 4 * time.Hour, 25 * time.Hour},
	} {
		for what, off := range map[string]bool{"the cloud is away": false, "the node is off": true} {
			t.Run(name+", "+what, func(t *testing.T) {
				in(t, func(_ *testing.T, r *rig) {
					pod := r.pod("web")
					r.change(func() { r.away = true })
					r.add(pod, tt.when)
					if off {
						r.stop()
					}
					r.wait(tt.back)
					r.deleted()
					if off {
						r.start()
					}
					r.returns()
					r.wait(tt.want - tt.back - time.Second)
					if tt.want > tt.back {
						r.deleted()
					}
					r.wait(spread + time.Second)
					r.deleted(pod)
				})
			})
		}
	}
}

func TestCorrectionsOfTheClock(t *testing.T) {
	const year = 366 * 24 * time.Hour // from 1 January 2000
	window := ota.When{Window: "02:00-05:00", TimeZone: "UTC"}
	at := ota.When{At: time.Date(2000, 1, 1, 3, 0, 0, 0, time.UTC)}
	for name, tt := range map[string]struct {
		when         ota.When
		before, skew time.Duration
		runs         bool          // within half a minute
		after        time.Duration // else within so long
	}{
		"forwards an hour, into the window":          {window, 90 * time.Minute, time.Hour, true, 0},
		"forwards an hour, over the window":          {ota.When{Window: "02:00-02:30", TimeZone: "UTC"}, 110 * time.Minute, time.Hour, false, 24 * time.Hour},
		"backwards an hour, before the window":       {window, 119 * time.Minute, -time.Hour, false, 62 * time.Minute},
		"forwards years, into the window":            {window, time.Hour, 10*year + 2*time.Hour, true, 0},
		"forwards years, out of the window":          {window, 119 * time.Minute, 10*year + 12*time.Hour, false, 24 * time.Hour},
		"backwards years, into the window":           {window, time.Hour, -10*year + 2*time.Hour, true, 0},
		"backwards years, out of the window":         {window, 119 * time.Minute, -10*year + 12*time.Hour, false, 24 * time.Hour},
		"forwards an hour, beyond the time":          {at, 150 * time.Minute, time.Hour, true, 0},
		"backwards an hour, away from the time":      {at, 179*time.Minute + 50*time.Second, -time.Hour, false, 61 * time.Minute},
		"forwards years, beyond the time":            {at, time.Hour, 10 * year, true, 0},
		"backwards years, and it is corrected again": {at, 179*time.Minute + 50*time.Second, -10 * year, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(_ *testing.T, r *rig) {
				pod := r.pod("web")
				r.add(pod, tt.when)
				r.wait(tt.before)
				r.deleted()
				correct := func(skew time.Duration) { // and nobody wakes the queue
					r.mu.Lock()
					defer r.mu.Unlock()
					r.skew = skew
				}
				correct(tt.skew)
				r.wait(poll + time.Second)
				if tt.runs {
					r.deleted(pod)
					return
				}
				r.deleted()
				if tt.after == 0 {
					r.wait(48 * time.Hour)
					r.deleted()
					correct(0)
					tt.after = poll
				}
				r.wait(tt.after)
				r.deleted(pod)
			})
		})
	}
}

// The power fails when the deletion may have been sent, and comes back when the window is over. Nothing
// begins then: it waits for the next window, and can be cancelled.
func TestAPowerCutInsideTheWindow(t *testing.T) {
	for name, cancel := range map[string]bool{"it waits for the next window": false, "it is cancelled": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, r *rig) {
				pod := r.pod("web")
				r.change(func() { r.away = true })
				r.add(pod, ota.When{Window: "02:00-05:00", TimeZone: "UTC"})
				r.wait(3 * time.Hour)
				r.crash(pod, false)
				r.wait(3 * time.Hour)
				r.start()
				r.returns()
				r.wait(spread)
				r.expect(pod, api.Scheduled, "")
				if cancel {
					if was, err := r.Cancel(nameOf(pod)); !was || err != nil {
						t.Errorf("got %v, %v", was, err)
					}
				}
				r.wait(19 * time.Hour)
				r.deleted()
				r.wait(2 * time.Hour)
				if cancel {
					r.deleted()
				} else {
					r.deleted(pod)
				}
			})
		})
	}
}

// The window closes while the checks are made.
func TestNothingBeginsOutsideOfItsWindow(t *testing.T) {
	in(t, func(_ *testing.T, r *rig) {
		pod := r.pod("web")
		r.change(func() { r.away = true })
		r.add(pod, ota.When{Window: "00:00-02:00", TimeZone: "UTC"})
		it := r.get(nameOf(pod))
		r.wait(2 * time.Hour)
		if err := r.begin(it); !errors.Is(err, errNotNow) {
			t.Errorf("got %v, want %v", err, errNotNow)
		}
		r.expect(pod, api.Scheduled, "")
	})
}
