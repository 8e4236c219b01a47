package inplace_test

import (
	"reflect"
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
	const went = ": the owner went back to the earlier version"
	for _, tt := range []struct {
		state           inplace.State
		status          corev1.ConditionStatus
		reason, message string
		annotated       bool
		upgrade         api.UpgradeState
		inPlace         api.InPlaceState
		says            string
		runs            string // to who reads the pod on the node
	}{
		{inplace.Shown, corev1.ConditionUnknown, api.ReasonInProbation, message, false, api.InProgress, api.InProbation, ": kubelet replaces the containers", ""},
		{inplace.Probation, corev1.ConditionUnknown, api.ReasonInProbation, message, false, api.InProgress, api.InProbation, ": the new version runs, and is watched until it has been Ready for 10s", ""},
		{inplace.Passed, corev1.ConditionTrue, api.ReasonPassed, message, false, api.Done, api.Passed, ", which has yet to follow", "new"},
		{inplace.Offered, corev1.ConditionTrue, api.ReasonPassed, message, true, api.Done, api.Passed, ", which has yet to follow", "new"},
		{inplace.Confirmed, corev1.ConditionTrue, api.ReasonReconciled, message, false, api.Done, api.Reconciled, ", which has followed", ""},
		{inplace.Undoing, corev1.ConditionFalse, api.ReasonUndone, message + went, false, api.Dropped, api.Undoing, "; the earlier version is started again" + went, ""},
		{inplace.Undone, corev1.ConditionFalse, api.ReasonUndone, message + went, false, api.Dropped, api.Undone, "; the earlier version runs again" + went, ""},
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

				u, _ := r.State(podName)
				ended := tt.state != inplace.Shown && tt.state != inplace.Probation
				if u.State != tt.upgrade || u.InPlace == nil || u.InPlace.State != tt.inPlace || u.Message != "in place, without the cloud"+tt.says ||
					!slices.Equal(u.InPlace.Images, target.InPlace) || (u.Ended != nil) != ended {
					t.Errorf("shown as %+v, %+v", u, u.InPlace)
				}
				if until := u.InPlace.Until; (until == nil) != ended || until != nil && (until.Before(time.Now()) || until.After(time.Now().Add(limit+time.Minute))) {
					t.Errorf("it is known by %v", until)
				}
				seen := pod()
				r.Describe(seen)
				own := api.Condition(seen, api.UpgradedOfflineCondition)
				if own == nil || own.Status != tt.status || own.Reason != tt.reason || own.Message != tt.message || own.LastTransitionTime.IsZero() || api.RunsOffline(seen) != tt.runs {
					t.Errorf("GET /pods has the condition %+v", own)
				}
				if reported, _, _ := api.OfflineUpgradeOf(seen); reported.Revision != tt.runs || seen.Spec.Containers[0].Image != was {
					t.Errorf("GET /pods has %+v, %s", reported, seen.Spec.Containers[0].Image)
				}
				again := seen.DeepCopy()
				if r.Describe(again); !reflect.DeepEqual(again, seen) {
					t.Errorf("a pod that has it already: %+v", again.Status.Conditions)
				}
				r.open(t)
				if after, _ := r.State(podName); !reflect.DeepEqual(after.Ended, u.Ended) {
					t.Errorf("it ended at %v, and after a restart at %v", u.Ended, after.Ended)
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

// What the node went back from by itself is not tried again, and the answer has the reason.
func TestWhatWasUndoneIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		began := time.Now()
		r.begin(t)
		time.Sleep(time.Minute)
		r.Update([]*corev1.Pod{pod(waits("", "ErrImageNeverPull", `image "app:v2" is not there`))})
		r.Update([]*corev1.Pod{pod(runs("C"))})
		u, _ := r.State(podName)
		const want = `in place, without the cloud; the earlier version runs again: kubelet cannot use the image of container app: ErrImageNeverPull: image "app:v2" is not there; it is not tried again without the cloud`
		if u.Message != want || u.InPlace.Reason != api.ReasonNoImage || !u.Ended.Equal(began.Add(time.Minute)) {
			t.Errorf("%+v, %+v", u, u.InPlace)
		}
		if p := pod(); r.Effective([]*corev1.Pod{p})[0] != p {
			t.Error("the pod is said to run the new version")
		}
		r.open(t)
		if err := r.Check(pod(runs("C")), target); !isNotPossible(err) || !strings.Contains(err.Error(), "the pod came back from it") {
			t.Errorf("after a restart it may be tried again: %v", err)
		}
		other := pod()
		other.UID = "another"
		if r.Describe(other); api.Condition(other, api.UpgradedOfflineCondition) != nil {
			t.Error("a pod without a record is described")
		}
	})
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
				// The cloud's own revision of the pod is not among those to which it says that there is a way.
				policy := pod()
				policy.Annotations = map[string]string{api.PolicyAnnotation: api.Policy{MaxHold: time.Hour, Rollback: true}.EncodeWith(map[string]string{})}
				if back := api.NoWayBack(r.Effective([]*corev1.Pod{policy})[0], "old"); (back == "") != (wantHash == "new") {
					t.Errorf("to the revision of the cloud: %q", back)
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
				if pods, lost, err := inplace.ReadUnreconciled(r.dir); !slices.Equal(pods, r.Unreconciled()) || len(lost) > 0 || err != nil {
					t.Errorf("unreconciled on disk: %v %v %v", pods, lost, err)
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
