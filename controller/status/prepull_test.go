package status

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestOnlyPodsOfThePlanAskTheirNodesToPull(t *testing.T) {
	const uid = "pod-uid"
	terminating := podAt("old")
	terminating.DeletionTimestamp = &metav1.Time{Time: now}
	tests := map[string]struct {
		pod     *corev1.Pod
		pulls   bool // with the time before
		deleted bool
		want    string // the annotation; the condition is to be gone
		changes int
	}{
		"a pod that should ask":                        {podAt("old"), true, false, "new", 1},
		"a pod that asks":                              {asking(podAt("old"), "new", before), true, false, "new", 0},
		"a pod that asks with another time":            {asking(podAt("old"), "new", now), true, false, "new", 1},
		"a pod that asks for another revision":         {asking(podAt("old"), "between", before), true, false, "new", 1},
		"a pod that should no longer ask":              {asking(podAt("old"), "new", before), false, false, "", 1},
		"a pod that never asked":                       {podAt("old"), false, false, "", 0},
		"a pod at the target after an undo":            {asking(podAt("new"), "new", before), false, false, "", 1},
		"a pod with an OTA mark that should ask":       {marked(podAt("old"), newTarget("new").markFor(podAt("old"))), true, false, "new", 1},
		"a pod with an OTA mark that should not ask":   {marked(podAt("old"), newTarget("new").markFor(podAt("old"))), false, false, "", 1},
		"a terminating pod":                            {terminating, true, false, "", 0},
		"a pod whose deletion the watch does not show": {podAt("old"), true, true, "", 0},
		"a pod whose deletion has no answer yet":       {asking(podAt("old"), "new", before), false, true, "new", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan, expected := rollout.Plan{Revision: "new"}, expectations.NewDeletions()
			if tt.pulls {
				plan.Pulls = map[types.UID]time.Time{uid: before}
			}
			if tt.deleted {
				expected.Expect(tt.pod)
			}
			changes := RolloutPatches(newTarget("new"), &plan, []*corev1.Pod{tt.pod}, expected.Has, now)
			if len(changes) != tt.changes {
				t.Fatalf("%d changes, want %d", len(changes), tt.changes)
			}
			got := tt.pod
			for _, c := range changes {
				got = patched(t, got, c.Patch)
			}
			target, _, _ := api.TargetOf(got)
			if target.Revision != tt.want || api.Condition(got, api.NeedCondition) != nil {
				t.Errorf("got target %+v and %+v, want target %q and no condition", target, got.Status.Conditions, tt.want)
			}
			if tt.want != "" && tt.changes > 0 && (target.Number != 7 || !target.Prepull.Time.Equal(before)) {
				t.Errorf("number %d, since %v, want 7, %v", target.Number, target.Prepull, before)
			}
			checkRestUntouched(t, got)
		})
	}
}

func TestPodsOfARolloutGetThePolicy(t *testing.T) {
	pod := podAt("old")
	none := func(types.UID) bool { return false }
	for _, policy := range []api.Policy{{MaxHold: time.Hour, InPlace: true}, api.DefaultPolicy()} { // set, and removed
		if policy.InPlace {
			policy.Newest = 7
		}
		want := policy.Encode()
		patches := RolloutPatches(NewMarker(imagesOf("new"), policy, nil, free), &rollout.Plan{Revision: "new"}, []*corev1.Pod{pod}, none, now)
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
