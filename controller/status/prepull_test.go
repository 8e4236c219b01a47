package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/podtest"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

func TestOnlyPodsOfThePlanAskTheirNodesToPull(t *testing.T) {
	const uid = "pod-uid"
	tests := map[string]struct {
		pod     *corev1.Pod
		pulls   bool // with the time before
		deleted bool
		want    string // the annotation; the condition is to be gone
		changes int
	}{
		"a pod that should ask":                        {podtest.PodAt("old"), true, false, "new", 1},
		"a pod that asks":                              {asking(podtest.PodAt("old"), "new", podtest.Before), true, false, "new", 0},
		"a pod that asks with another time":            {asking(podtest.PodAt("old"), "new", podtest.Now), true, false, "new", 1},
		"a pod that asks for another revision":         {asking(podtest.PodAt("old"), "between", podtest.Before), true, false, "new", 1},
		"a pod that should no longer ask":              {asking(podtest.PodAt("old"), "new", podtest.Before), false, false, "", 1},
		"a pod that never asked":                       {podtest.PodAt("old"), false, false, "", 0},
		"a pod at the target after an undo":            {asking(podtest.PodAt("new"), "new", podtest.Before), false, false, "", 1},
		"a pod with an OTA mark that should ask":       {marked(podtest.PodAt("old"), newTarget("new").markFor(podtest.PodAt("old"))), true, false, "new", 1},
		"a pod with an OTA mark that should not ask":   {marked(podtest.PodAt("old"), newTarget("new").markFor(podtest.PodAt("old"))), false, false, "", 1},
		"a terminating pod":                            {podtest.Terminating(podtest.PodAt("old")), true, false, "", 0},
		"a pod whose deletion the watch does not show": {podtest.PodAt("old"), true, true, "", 0},
		"a pod whose deletion has no answer yet":       {asking(podtest.PodAt("old"), "new", podtest.Before), false, true, "new", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan, expected := rollout.Plan{Revision: "new"}, expectations.NewDeletions()
			if tt.pulls {
				plan.Pulls = map[types.UID]time.Time{uid: podtest.Before}
			}
			if tt.deleted {
				expected.Expect(tt.pod)
			}
			changes := RolloutPatches(newTarget("new"), &plan, []*corev1.Pod{tt.pod}, expected.Has, podtest.Now)
			if len(changes) != tt.changes {
				t.Fatalf("%d changes, want %d", len(changes), tt.changes)
			}
			got := tt.pod
			for _, c := range changes {
				got = patched(t, got, c.Patch)
			}
			target, _, _ := upgrade.TargetOf(got)
			if target.Revision != tt.want || upgrade.Condition(got, upgrade.NeedCondition) != nil {
				t.Errorf("got target %+v and %+v, want target %q and no condition", target, got.Status.Conditions, tt.want)
			}
			if tt.want != "" && tt.changes > 0 && !target.Prepull.Time.Equal(podtest.Before) {
				t.Errorf("since %v, want %v", target.Prepull, podtest.Before)
			}
			checkRestUntouched(t, got)
		})
	}
}

func TestPodsOfARolloutGetThePolicy(t *testing.T) {
	pod := podtest.PodAt("old")
	none := func(types.UID) bool { return false }
	for _, policy := range []upgrade.Policy{{MaxHold: time.Hour}, upgrade.DefaultPolicy()} { // set, and removed
		want := policy.Encode()
		patches := RolloutPatches(NewMarker(imagesOf("new"), policy, nil, free), &rollout.Plan{Revision: "new"}, []*corev1.Pod{pod}, none, podtest.Now)
		if len(patches) != 1 {
			t.Fatalf("%d patches for policy %q", len(patches), want)
		}
		pod = patched(t, pod, patches[0].Patch)
		if got := MarkOf(pod); got != (Mark{Policy: want}) {
			t.Errorf("got %+v, want policy %q alone", got, want)
		}
		checkRestUntouched(t, pod)
	}
}
