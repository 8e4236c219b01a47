package status

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

const foreign appsv1.DaemonSetConditionType = "SomebodyElses"

func condition(t appsv1.DaemonSetConditionType, status corev1.ConditionStatus, reason, message string) appsv1.DaemonSetCondition {
	return appsv1.DaemonSetCondition{Type: t, Status: status, Reason: reason, Message: message}
}

// withConditions is a DaemonSet with these conditions since before, and one of another program.
func withConditions(all ...appsv1.DaemonSetCondition) *appsv1.DaemonSet {
	ds := &appsv1.DaemonSet{}
	ds.Namespace, ds.Name, ds.UID = "default", "web", "ds-uid"
	for _, c := range append(all, condition(foreign, corev1.ConditionTrue, "Theirs", "")) {
		c.LastTransitionTime = metav1.NewTime(before)
		ds.Status.Conditions = append(ds.Status.Conditions, c)
	}
	return ds
}

// daemonSetPatched applies a patch as the apiserver does.
func daemonSetPatched(t *testing.T, ds *appsv1.DaemonSet, patch []byte) *appsv1.DaemonSet {
	t.Helper()
	original, err := json.Marshal(ds)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	out := &appsv1.DaemonSet{}
	if err := json.Unmarshal(merged, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConditionsPatch(t *testing.T) {
	const (
		complete    = rollout.CompleteCondition
		progressing = rollout.ProgressingCondition
		yes, no     = corev1.ConditionTrue, corev1.ConditionFalse
	)
	want := func(all ...appsv1.DaemonSetCondition) Conditions {
		c := Conditions{}
		c.Set(all...)
		return c
	}
	tests := map[string]struct {
		have   []appsv1.DaemonSetCondition
		want   Conditions
		none   bool
		urgent bool
		after  map[appsv1.DaemonSetConditionType]corev1.ConditionStatus
		moved  bool // the transition of complete is now
	}{
		"a first one": {
			want: want(condition(complete, no, "A", "m")), urgent: true, moved: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"no change": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")},
			want: want(condition(complete, no, "A", "m")), none: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"another message can wait": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")}, want: want(condition(complete, no, "A", "other")),
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"another reason is urgent, and no transition": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")}, want: want(condition(complete, no, "B", "m")), urgent: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"another status is urgent, and a transition": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")}, want: want(condition(complete, yes, "B", "m")), urgent: true, moved: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: yes},
		},
		"a condition that is not mentioned stays": {
			have: []appsv1.DaemonSetCondition{condition(progressing, no, "A", "m")}, want: want(condition(complete, yes, "B", "m")), urgent: true, moved: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: yes, progressing: no},
		},
		"a removed condition": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m"), condition(progressing, yes, "A", "m")},
			want: Conditions{complete: nil}, urgent: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{progressing: yes},
		},
		"a removed condition that was not there": {want: Conditions{complete: nil}, none: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ds := withConditions(tt.have...)
			patch, urgent := PatchConditions(ds, tt.want, now)
			if (patch == nil) != tt.none || urgent != tt.urgent {
				t.Fatalf("got %s, urgent: %t", patch, urgent)
			}
			if patch != nil {
				ds = daemonSetPatched(t, ds, patch)
			}
			if c := daemonset.Condition(ds, foreign); c == nil || c.Reason != "Theirs" || len(ds.Status.Conditions) != len(tt.after)+1 {
				t.Errorf("got %v", ds.Status.Conditions)
			}
			for conditionType, status := range tt.after {
				if c := daemonset.Condition(ds, conditionType); c == nil || c.Status != status {
					t.Errorf("%s is %v, want %s", conditionType, c, status)
				}
			}
			if c := daemonset.Condition(ds, complete); c != nil && c.LastTransitionTime.Time.Equal(now) != tt.moved {
				t.Errorf("the transition is of %v", c.LastTransitionTime)
			}
		})
	}
}

// What AdvancedRollingUpdate set before is corrected with OTA, and the other way round.
func TestConditionsWhenTheStrategyChanges(t *testing.T) {
	ds := withConditions(rollout.Invalid("problem"),
		condition(rollout.CompleteCondition, corev1.ConditionTrue, "A", "m"), condition(rollout.ProgressingCondition, corev1.ConditionFalse, "A", "m"),
		condition(rollout.HaltedCondition, corev1.ConditionTrue, "A", "m"))
	complete := condition(rollout.CompleteCondition, corev1.ConditionFalse, rollout.ReasonWaitingForOwners, "m")
	patch, _ := PatchConditions(ds, ForOTA(ds, complete), now)
	ds = daemonSetPatched(t, ds, patch)
	if c := daemonset.Condition(ds, rollout.CompleteCondition); c == nil || c.Reason != rollout.ReasonWaitingForOwners || c.Status != corev1.ConditionFalse {
		t.Errorf("got %v", ds.Status.Conditions)
	}
	if c := daemonset.Condition(ds, rollout.InvalidCondition); c == nil || c.Status != corev1.ConditionFalse || len(ds.Status.Conditions) != 3 {
		t.Errorf("got %v, want what is invalid corrected, and no other condition of a rollout", ds.Status.Conditions)
	}
	patch, _ = PatchConditions(ds, ForRollout(ds, rollout.AwaitRevision()...), now)
	if ds = daemonSetPatched(t, ds, patch); daemonset.Condition(ds, rollout.CompleteCondition).Reason != rollout.ReasonNewTemplate {
		t.Errorf("got %v", ds.Status.Conditions)
	}
}

func TestConditionsOfInvalidAnnotations(t *testing.T) {
	rolled := withConditions(condition(rollout.CompleteCondition, corev1.ConditionTrue, "A", "m"))
	if got := ForInvalid(rolled, "problem"); got[rollout.CompleteCondition] == nil || got[rollout.CompleteCondition].Status != corev1.ConditionFalse {
		t.Errorf("a rollout that is stuck is not complete: got %v", got)
	}
	if got := ForInvalid(withConditions(), "problem"); len(got) != 1 || got[rollout.InvalidCondition] == nil {
		t.Errorf("got %v", got)
	}
	ota := withConditions(condition(rollout.CompleteCondition, corev1.ConditionTrue, "A", "m"))
	ota.Annotations = map[string]string{daemonset.StrategyAnnotation: "OTA"}
	ota.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	if got := ForInvalid(ota, "problem"); got[rollout.CompleteCondition].Status != corev1.ConditionFalse || got[rollout.ProgressingCondition] != nil {
		t.Errorf("with OTA there is no other condition of a rollout: got %v", got)
	}
	if got := Accepted(withConditions()); len(got) != 0 {
		t.Errorf("got %v, though nothing was ever wrong", got)
	}
	invalid := withConditions(rollout.Invalid("problem"))
	if got := Accepted(invalid); got[rollout.InvalidCondition].Status != corev1.ConditionFalse {
		t.Errorf("got %v", got)
	}
	if len(OwnedConditions(invalid)) != 1 || len(OwnedConditions(withConditions())) != 0 {
		t.Error("whose conditions are whose?")
	}
}
