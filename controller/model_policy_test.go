package controller_test

import (
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestModelPodsGetThePolicyAndLoseIt(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 5, 1, rolling)
		expect := func(want api.Policy) {
			t.Helper()
			time.Sleep(time.Minute)
			m.api.mu.Lock()
			defer m.api.mu.Unlock()
			got := map[string]int{}
			for _, pods := range m.podsLocked() {
				policy, err := api.PolicyOf(pods[0])
				if _, annotated := pods[0].Annotations[api.PolicyAnnotation]; err != nil || annotated != (policy.Encode() != "") {
					t.Errorf("got %v, %v", pods[0].Annotations, err)
				}
				got[policy.Encode()]++
			}
			if got[want.Encode()] != 5 {
				t.Errorf("got %v, want 5 with %q", got, want.Encode())
			}
		}
		expect(api.DefaultPolicy())
		m.annotate(api.MaxHoldAnnotation, "1h")
		expect(api.Policy{MaxHold: time.Hour, History: 1})
		m.rollsOut("app:2") // the new pods get it as well
		expect(api.Policy{MaxHold: time.Hour, History: 1})
		m.annotate(api.OfflineUpgradeAnnotation, "InPlace")
		expect(api.Policy{MaxHold: time.Hour, History: 1, InPlace: true, Newest: 2})
		m.annotate(strategyKey, "OTA")
		expect(api.Policy{MaxHold: time.Hour, History: 1, Rollback: true, InPlace: true, Newest: 2})
		m.annotate(api.OfflineUpgradeAnnotation, "Queue")
		expect(api.Policy{MaxHold: time.Hour, History: 1, Rollback: true})
		m.annotate(strategyKey, rolling)
		expect(api.Policy{MaxHold: time.Hour, History: 1})
		m.start() // it does not know what an earlier one did
		expect(api.Policy{MaxHold: time.Hour, History: 1})
		m.annotate(strategyKey, "")
		expect(api.DefaultPolicy())

	})
}
