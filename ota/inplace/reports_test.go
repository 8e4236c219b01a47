package inplace_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/inplace"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

func TestReports(t *testing.T) {
	const message = "controllerrevision: new"
	for _, tt := range []struct {
		state           inplace.State
		status          corev1.ConditionStatus
		reason, message string
		annotated       bool
	}{
		{inplace.Shown, corev1.ConditionUnknown, api.ReasonInProbation, message, false},
		{inplace.Probation, corev1.ConditionUnknown, api.ReasonInProbation, message, false},
		{inplace.Passed, corev1.ConditionTrue, api.ReasonPassed, message, false},
		{inplace.Offered, corev1.ConditionTrue, api.ReasonPassed, message, true},
		{inplace.Confirmed, corev1.ConditionTrue, api.ReasonReconciled, message, false},
		{inplace.Undoing, corev1.ConditionFalse, api.ReasonUndone, message + ": the owner went back to the earlier version", false},
		{inplace.Undone, corev1.ConditionFalse, api.ReasonUndone, message + ": the owner went back to the earlier version", false},
	} {
		t.Run(string(tt.state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lead(t, tt.state)
				report := r.Report(pod())
				c := report.Conditions[0]
				if c.Type != api.UpgradedOfflineCondition || c.Status != tt.status || c.Reason != tt.reason || c.Message != tt.message {
					t.Errorf("condition %+v", c)
				}
				value := report.Annotations[api.UpgradedOfflineAnnotation]
				if (value != "") != tt.annotated || value != "" && !strings.HasPrefix(value, `{"revision":"new","from":"old","images":[{"name":"app","image":"app:v2"}],`) {
					t.Errorf("annotation %s", value)
				}
			})
		})
	}
	// What an earlier record has left is removed.
	left := pod()
	left.Annotations = map[string]string{api.UpgradedOfflineAnnotation: "{}"}
	left.Status.Conditions = append(left.Status.Conditions, corev1.PodCondition{Type: api.UpgradedOfflineCondition, Status: corev1.ConditionTrue})
	r := newRig(t)
	patch := string(podreport.Patch(left, []podreport.Report{r.Report(left)}, time.Time{}))
	if !strings.Contains(patch, `"apps.openyurt.io/upgraded-offline":null`) || !strings.Contains(patch, `"$patch":"delete"`) {
		t.Errorf("without a record: %s", patch)
	}
	if patch := podreport.Patch(pod(), []podreport.Report{r.Report(pod())}, time.Time{}); patch != nil {
		t.Errorf("a pod that has nothing of it: %s", patch)
	}
}

// lead leads the pod's record to a state.
func (r *rig) lead(t *testing.T, s inplace.State) {
	t.Helper()
	r.begin(t)
	if s == inplace.Shown {
		return
	}
	r.Update([]*corev1.Pod{pod(runs("B"))})
	if s == inplace.Probation {
		return
	}
	if s == inplace.Undoing || s == inplace.Undone {
		if ok, err := r.GoBack("u"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if s == inplace.Undone {
			r.Update([]*corev1.Pod{pod(runs("C"))})
		}
		return
	}
	r.run(t, 11*time.Second)
	if s != inplace.Passed {
		r.Offer()
	}
	if s == inplace.Confirmed {
		r.Update([]*corev1.Pod{pod(runs("B"), image(becomes), version("20"))})
	}
}

func TestThePodAsItRuns(t *testing.T) {
	for _, state := range states {
		t.Run(string(state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.lead(t, state)
				p, wantImage, wantHash := pod(), was, "old"
				if state == inplace.Passed || state == inplace.Offered {
					wantImage, wantHash = becomes, "new"
				}
				got := r.Effective([]*corev1.Pod{p})[0]
				if got.Spec.Containers[0].Image != wantImage || got.Labels["controller-revision-hash"] != wantHash || got.Spec.Containers[1].Image != "other:v1" {
					t.Errorf("%v %v", got.Spec.Containers, got.Labels)
				}
				if p.Spec.Containers[0].Image != was || p.Labels["controller-revision-hash"] != "old" {
					t.Error("the pod of the cloud was changed")
				}
				wantKept, reconciled := []string{was, becomes}, false
				if state == inplace.Confirmed || state == inplace.Undone {
					wantKept = nil
				}
				if state == inplace.Confirmed || state == inplace.Undone || state == inplace.Undoing {
					reconciled = true
				}
				if kept := r.Retain(); !slices.Equal(kept, wantKept) {
					t.Errorf("%q stay on the node", kept)
				}
				if (len(r.Unreconciled()) == 0) != reconciled {
					t.Errorf("unreconciled: %v", r.Unreconciled())
				}
			})
		})
	}
}

// An upgrade is offered as soon as the cloud can be reached, and on disk before it is reported.
func TestAnUpgradeIsOfferedWhenTheCloudIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.lead(t, inplace.Passed)
		r.run(t, time.Minute)
		if r.Report(pod()).Annotations[api.UpgradedOfflineAnnotation] != "" {
			t.Fatal("offered without the cloud")
		}
		r.online = true
		r.CloudReturned()
		r.run(t, time.Millisecond)
		if r.Report(pod()).Annotations[api.UpgradedOfflineAnnotation] == "" {
			t.Fatal("not offered")
		}
		r.online = false
		r.open(t)
		if ok, err := r.GoBack("u"); ok || err != nil {
			t.Errorf("the cloud may have followed, and the node goes back by itself: %t, %v", ok, err)
		}
	})
}
