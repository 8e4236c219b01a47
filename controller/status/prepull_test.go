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

func TestPodsSayWhatThePlanWantsAndNothingElse(t *testing.T) {
	const uid = "pod-uid"
	tests := map[string]struct {
		pod     *corev1.Pod
		pulls   bool // with the time before
		deleted bool
		want    string // the annotation; the condition is to be gone
		changes int
	}{
		"one that is to tell its node":                {podtest.PodAt("old"), true, false, "new", 1},
		"one that has told":                           {told(podtest.PodAt("old"), "new", podtest.Before), true, false, "new", 0},
		"one that has told another time":              {told(podtest.PodAt("old"), "new", podtest.Now), true, false, "new", 1},
		"one that has told of another revision":       {told(podtest.PodAt("old"), "between", podtest.Before), true, false, "new", 1},
		"one that is to say no more":                  {told(podtest.PodAt("old"), "new", podtest.Before), false, false, "", 1},
		"one that never said anything":                {podtest.PodAt("old"), false, false, "", 0},
		"one that is at the target by an undo":        {told(podtest.PodAt("new"), "new", podtest.Before), false, false, "", 1},
		"one that waits for an owner still":           {marked(podtest.PodAt("old"), newTarget("new").markFor(podtest.PodAt("old"))), true, false, "new", 1},
		"one that waits for an owner, for no reason":  {marked(podtest.PodAt("old"), newTarget("new").markFor(podtest.PodAt("old"))), false, false, "", 1},
		"one that is told to go":                      {podtest.Terminating(podtest.PodAt("old")), true, false, "", 0},
		"one whose deletion the watch does not show":  {podtest.PodAt("old"), true, true, "", 0},
		"one whose deletion has had no answer so far": {told(podtest.PodAt("old"), "new", podtest.Before), false, true, "new", 0},
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
			changes := PrepullPatches(imagesOf("new"), &plan, []*corev1.Pod{tt.pod}, expected.Has, podtest.Now)
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
