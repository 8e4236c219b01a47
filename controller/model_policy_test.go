package controller_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

func TestModelPodsGetThePolicyAndLoseIt(t *testing.T) {
	simulate(t, func(t *testing.T) {
		m := startModel(t, 5, 1, rolling)
		expect := func(want upgrade.Policy) {
			t.Helper()
			time.Sleep(time.Minute)
			m.api.mu.Lock()
			defer m.api.mu.Unlock()
			got := map[string]int{}
			for _, pods := range m.podsLocked() {
				got[pods[0].Annotations[upgrade.PolicyAnnotation]]++
			}
			if got[want.Encode()] != 5 {
				t.Errorf("got %v, want 5 with %q", got, want.Encode())
			}
		}
		annotate := func(key, value string) {
			m.change(func(ds *appsv1.DaemonSet) { ds.Annotations[key] = value })
		}
		const strategy = "apps.openyurt.io/update-strategy"
		expect(upgrade.DefaultPolicy())
		annotate(upgrade.MaxHoldAnnotation, "1h")
		expect(upgrade.Policy{MaxHold: time.Hour, History: 1})
		m.rollsOut("app:2") // the new pods get it as well
		expect(upgrade.Policy{MaxHold: time.Hour, History: 1})
		annotate(strategy, "OTA")
		expect(upgrade.Policy{MaxHold: time.Hour, History: 1, Rollback: true})
		annotate(strategy, rolling)
		expect(upgrade.Policy{MaxHold: time.Hour, History: 1})
		m.start() // it does not know what an earlier one did
		expect(upgrade.Policy{MaxHold: time.Hour, History: 1})
		m.change(func(ds *appsv1.DaemonSet) { delete(ds.Annotations, strategy) })
		expect(upgrade.DefaultPolicy())

		annotate(strategy, rolling)
		annotate(upgrade.MaxHoldAnnotation, "a day")
		time.Sleep(time.Minute)
		m.api.mu.Lock()
		uid := string(m.daemonSetLocked().UID)
		invalid := m.conditionLocked(rollout.InvalidCondition)
		m.api.mu.Unlock()
		if all := m.eventsOf(uid, "InvalidUpdateStrategy"); len(all) != 1 || !strings.Contains(all[0], `max-hold is "a day": write a duration`) {
			t.Errorf("got Events %q", all)
		}
		if invalid.Status != corev1.ConditionTrue {
			t.Errorf("got %+v", invalid)
		}
	})
}
