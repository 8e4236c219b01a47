package status

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
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

// patched applies a patch as the apiserver does.
func patched[T any](t *testing.T, o *T, patch []byte) *T {
	t.Helper()
	original, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	out := new(T)
	merged, err := strategicpatch.StrategicMergePatch(original, patch, out)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(merged, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestConditionsPatch(t *testing.T) {
	const (
		complete    = api.CompleteCondition
		progressing = api.ProgressingCondition
		yes, no     = corev1.ConditionTrue, corev1.ConditionFalse
	)
	want := func(all ...appsv1.DaemonSetCondition) Conditions {
		c := Conditions{}
		c.Set(all...)
		return c
	}
	tests := map[string]struct {
		have  []appsv1.DaemonSetCondition
		want  Conditions
		none  bool
		wait  time.Duration
		after map[appsv1.DaemonSetConditionType]corev1.ConditionStatus
		moved bool // the transition of complete is now
	}{
		"a first one": {
			want: want(condition(complete, no, "A", "m")), moved: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"no change": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")},
			want: want(condition(complete, no, "A", "m")), none: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"another message can wait": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")}, want: want(condition(complete, no, "A", "other")), wait: messageInterval,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"another reason is urgent, and no transition": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")}, want: want(condition(complete, no, "B", "m")),
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: no},
		},
		"another status is urgent, and a transition": {
			have: []appsv1.DaemonSetCondition{condition(complete, no, "A", "m")}, want: want(condition(complete, yes, "B", "m")), moved: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: yes},
		},
		"a condition that is not mentioned stays": {
			have: []appsv1.DaemonSetCondition{condition(progressing, no, "A", "m")}, want: want(condition(complete, yes, "B", "m")), moved: true,
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{complete: yes, progressing: no},
		},
		"a removed condition": {
			have:  []appsv1.DaemonSetCondition{condition(complete, no, "A", "m"), condition(progressing, yes, "A", "m")},
			want:  Conditions{complete: nil},
			after: map[appsv1.DaemonSetConditionType]corev1.ConditionStatus{progressing: yes},
		},
		"a removed condition that was not there": {want: Conditions{complete: nil}, none: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ds := withConditions(tt.have...)
			patch, wait := PatchWorkload(ds, tt.want, nil, now)
			if (patch == nil) != tt.none || wait != tt.wait {
				t.Fatalf("got %s, which may wait for %v", patch, wait)
			}
			if patch != nil {
				ds = patched(t, ds, patch)
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

// What programs wait for is written at once; a node more or less in the report is not worth a reconcile by Kubernetes.
func TestReportPatch(t *testing.T) {
	report := func(reason string, ready int) *rollout.Report {
		r := rollout.NewAwaitReport(&appsv1.StatefulSet{})
		r.Reason, r.Limits = reason, &rollout.Limits{Ready: ready}
		return r
	}
	was := report("A", 1).Encode()
	tests := map[string]struct {
		have   string
		want   *rollout.Report
		change func(*appsv1.StatefulSet)
		wait   time.Duration
		after  string
	}{
		"a first one":                     {"", report("A", 1), nil, 0, was},
		"no change":                       {was, report("A", 1), nil, 0, was},
		"a node more can wait":            {was, report("A", 2), nil, reportInterval, report("A", 2).Encode()},
		"another reason is urgent":        {was, report("B", 1), nil, 0, report("B", 1).Encode()},
		"an answer to a change is urgent": {was, report("A", 2), func(s *appsv1.StatefulSet) { s.Generation++ }, 0, report("A", 2).Encode()},
		"one that cannot be read":         {"{", report("A", 1), nil, 0, was},
		"one that is not mentioned":       {was, nil, nil, 0, was},
		"a workload that has opted out":   {was, &rollout.Report{}, nil, 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{"theirs": "1"}}}
			if tt.have != "" {
				sts.Annotations[api.ReportAnnotation] = tt.have
			}
			if tt.change != nil {
				tt.change(sts)
			}
			patch, wait := PatchWorkload(sts, nil, tt.want, now)
			if wait != tt.wait || (patch == nil) != (tt.have == tt.after) {
				t.Errorf("got %s, which may wait for %v", patch, wait)
			}
			if patch != nil {
				sts = patched(t, sts, patch)
			}
			if got := sts.Annotations[api.ReportAnnotation]; got != tt.after || sts.Annotations["theirs"] != "1" {
				t.Errorf("got %q, want %q", got, tt.after)
			}
		})
	}
}

// What AdvancedRollingUpdate set before is corrected with OTA, and the other way round.
func TestConditionsWhenTheStrategyChanges(t *testing.T) {
	ds := withConditions(rollout.Invalid("problem"),
		condition(api.CompleteCondition, corev1.ConditionTrue, "A", "m"), condition(api.ProgressingCondition, corev1.ConditionFalse, "A", "m"),
		condition(api.HaltedCondition, corev1.ConditionTrue, "A", "m"))
	complete := condition(api.CompleteCondition, corev1.ConditionFalse, rollout.ReasonWaitingForOwners, "m")
	patch, _ := PatchWorkload(ds, ForOTA(ds, complete), nil, now)
	ds = patched(t, ds, patch)
	if c := daemonset.Condition(ds, api.CompleteCondition); c == nil || c.Reason != rollout.ReasonWaitingForOwners || c.Status != corev1.ConditionFalse {
		t.Errorf("got %v", ds.Status.Conditions)
	}
	if c := daemonset.Condition(ds, api.InvalidCondition); c == nil || c.Status != corev1.ConditionFalse || len(ds.Status.Conditions) != 3 {
		t.Errorf("got %v, want what is invalid corrected, and no other condition of a rollout", ds.Status.Conditions)
	}
	patch, _ = PatchWorkload(ds, ForRollout(ds, rollout.AwaitRevision()...), nil, now)
	if ds = patched(t, ds, patch); daemonset.Condition(ds, api.CompleteCondition).Reason != rollout.ReasonNewTemplate {
		t.Errorf("got %v", ds.Status.Conditions)
	}
}

func TestConditionsOfInvalidAnnotations(t *testing.T) {
	rolled := withConditions(condition(api.CompleteCondition, corev1.ConditionTrue, "A", "m"))
	if got := ForInvalid(rolled, "problem"); got[api.CompleteCondition] == nil || got[api.CompleteCondition].Status != corev1.ConditionFalse {
		t.Errorf("a rollout that is stuck is not complete: got %v", got)
	}
	if got := ForInvalid(withConditions(), "problem"); len(got) != 1 || got[api.InvalidCondition] == nil {
		t.Errorf("got %v", got)
	}
	ota := withConditions(condition(api.CompleteCondition, corev1.ConditionTrue, "A", "m"))
	ota.Annotations = map[string]string{api.StrategyAnnotation: "OTA"}
	ota.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	if got := ForInvalid(ota, "problem"); got[api.CompleteCondition].Status != corev1.ConditionFalse || got[api.ProgressingCondition] != nil {
		t.Errorf("with OTA there is no other condition of a rollout: got %v", got)
	}
	if got := Accepted(withConditions()); len(got) != 0 {
		t.Errorf("got %v, though nothing was ever wrong", got)
	}
	invalid := withConditions(rollout.Invalid("problem"))
	if got := Accepted(invalid); got[api.InvalidCondition].Status != corev1.ConditionFalse {
		t.Errorf("got %v", got)
	}
	if len(OwnedConditions(invalid)) != 1 || len(OwnedConditions(withConditions())) != 0 {
		t.Error("whose conditions are whose?")
	}
}
