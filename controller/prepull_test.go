package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		"one that is to tell its node":                {podAt("old"), true, false, "new", 1},
		"one that has told":                           {told(podAt("old"), "new", before), true, false, "new", 0},
		"one that has told another time":              {told(podAt("old"), "new", now), true, false, "new", 1},
		"one that has told of another revision":       {told(podAt("old"), "between", before), true, false, "new", 1},
		"one that is to say no more":                  {told(podAt("old"), "new", before), false, false, "", 1},
		"one that never said anything":                {podAt("old"), false, false, "", 0},
		"one that is at the target by an undo":        {told(podAt("new"), "new", before), false, false, "", 1},
		"one that waits for an owner still":           {marked(podAt("old"), newTarget("new").markFor(podAt("old"))), true, false, "new", 1},
		"one that waits for an owner, for no reason":  {marked(podAt("old"), newTarget("new").markFor(podAt("old"))), false, false, "", 1},
		"one that is told to go":                      {terminating(podAt("old")), true, false, "", 0},
		"one whose deletion the watch does not show":  {podAt("old"), true, true, "", 0},
		"one whose deletion has had no answer so far": {told(podAt("old"), "new", before), false, true, "new", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			plan, expected := rollout.Plan{Revision: "new"}, newExpectations()
			if tt.pulls {
				plan.Pulls = map[types.UID]time.Time{uid: before}
			}
			if tt.deleted {
				expected.expect(tt.pod)
			}
			changes := prepullPatches(imagesOf("new"), &plan, []*corev1.Pod{tt.pod}, expected.has, now)
			if len(changes) != tt.changes {
				t.Fatalf("%d changes, want %d", len(changes), tt.changes)
			}
			got := tt.pod
			for _, c := range changes {
				got = patched(t, got, c.patch)
			}
			target, _, _ := upgrade.TargetOf(got)
			if target.Revision != tt.want || upgrade.Condition(got, upgrade.NeedCondition) != nil {
				t.Errorf("got target %+v and %+v, want target %q and no condition", target, got.Status.Conditions, tt.want)
			}
			if tt.want != "" && tt.changes > 0 && !target.Prepull.Time.Equal(before) {
				t.Errorf("since %v, want %v", target.Prepull, before)
			}
			checkRestUntouched(t, got)
		})
	}
}

func terminating(pod *corev1.Pod) *corev1.Pod {
	pod.DeletionTimestamp = &metav1.Time{Time: now}
	return pod
}

func TestWhatANodeSaysOfImagesIsKeptAndNoticed(t *testing.T) {
	trimmed := func(change func(*corev1.PodCondition)) *corev1.Pod {
		pod := podAt("old")
		change(upgrade.Condition(pod, upgrade.ImageCondition))
		out, err := trimPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*corev1.Pod)
	}
	first := trimmed(func(*corev1.PodCondition) {})
	if c := upgrade.Condition(first, upgrade.ImageCondition); c == nil || upgrade.RevisionOf(c) != "new" {
		t.Fatalf("got %+v", c)
	}
	for name, tt := range map[string]struct {
		change func(*corev1.PodCondition)
		want   bool
	}{
		"the status":   {func(c *corev1.PodCondition) { c.Status = corev1.ConditionTrue }, true},
		"the reason":   {func(c *corev1.PodCondition) { c.Reason = "PrepullUnauthorized" }, true},
		"the revision": {func(c *corev1.PodCondition) { c.Message = upgrade.Message("newer") }, true},
		"a time only":  {func(c *corev1.PodCondition) { c.LastTransitionTime = metav1.NewTime(now) }, false},
	} {
		if got := podChanged(first, trimmed(tt.change)); got != tt.want {
			t.Errorf("%s changed: got %t", name, got)
		}
	}
}
