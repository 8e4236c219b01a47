package fuzzcache

import (
	"testing"
	"time"
)

// A report counts as kept by the hub until the hub is killed. The test may note an
// answer only after the kill.
func TestAReportIsLostWithTheHubThatAnsweredIt(t *testing.T) {
	kill := time.Now()
	for name, tc := range map[string]struct {
		answered time.Time
		certain  bool
	}{
		"long before the kill": {kill.Add(-2 * lossBeforeKill), true},
		"just before the kill": {kill.Add(-time.Millisecond), false},
		"by the next hub":      {kill.Add(time.Minute), true},
	} {
		for order, early := range map[string]bool{"noted before it": true, "noted after it": false} {
			t.Run(name+", "+order, func(t *testing.T) {
				all, r := &statuses{}, &report{n: 1, uid: "u"}
				stored := &state{rev: 5, namespace: first, name: "p-0", uid: "u"}
				all.add(stored.key(), r)
				if early && tc.answered.Before(kill) {
					all.settle(r, stored, tc.answered)
				}
				all.lost(kill.Add(-lossBeforeKill))
				if !early || tc.answered.After(kill) {
					all.settle(r, stored, tc.answered)
				}
				if _, ok := all.due(stored, kill.Add(time.Hour)); ok != tc.certain {
					t.Errorf("it has to be shown: %t, want %t", ok, tc.certain)
				}
			})
		}
	}
}

// The hub keeps one report for each pod. One that was on its way when a pod was asked for may lie over
// another version of the pod than the copy that is shown.
func TestALaterReportTakesThePlaceOfThoseBefore(t *testing.T) {
	asked := time.Now()
	for name, tc := range map[string]struct {
		rev      int64
		answered time.Duration // after the pod was asked for
		due      bool
	}{
		"over a newer version, before":  {6, -time.Second, false},
		"over a newer version, later":   {6, time.Second, false},
		"over the same version, before": {5, -time.Second, true},
		"over the same version, later":  {5, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			all, earlier, later := &statuses{}, &report{n: 1, uid: "u"}, &report{n: 2, uid: "u"}
			stored := &state{rev: 5, namespace: first, name: "p-0", uid: "u"}
			all.add(stored.key(), earlier)
			all.settle(earlier, stored, asked.Add(-time.Minute))
			all.add(stored.key(), later)
			all.settle(later, &state{rev: tc.rev, uid: "u"}, asked.Add(tc.answered))
			if _, ok := all.due(stored, asked); ok != tc.due {
				t.Errorf("it has to be shown: %t, want %t", ok, tc.due)
			}
		})
	}
}

func TestAKilledHubHasLostWhatWasNotOnDisk(t *testing.T) {
	kill := time.Now()
	ago := func(d time.Duration) time.Time { return kill.Add(-d) }
	for name, tc := range map[string]struct {
		disk disk
		from time.Time
	}{
		"killed at any time":          {disk{}, ago(lossBeforeKill)},
		"all was written of late":     {disk{written: ago(time.Second)}, ago(time.Second)},
		"all was written long before": {disk{written: ago(time.Hour)}, ago(lossBeforeKill)},
		"the disk is full":            {disk{full: ago(time.Minute)}, ago(time.Minute + lossBeforeKill)},
		"it was full until just now":  {disk{full: ago(time.Minute), freed: ago(time.Second), written: ago(2 * time.Second)}, ago(time.Minute + lossBeforeKill)},
		"it was full long before":     {disk{full: ago(time.Hour), freed: ago(time.Minute)}, ago(lossBeforeKill)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.disk.lostBy(kill); got != (loss{tc.from, kill}) {
				t.Errorf("lost from %v before the kill on, want %v", kill.Sub(got.from), kill.Sub(tc.from))
			}
		})
	}
}
