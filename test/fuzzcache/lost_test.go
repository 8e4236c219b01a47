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
