package controller

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

func TestDeletionsAreExpectedUntilTheWatchShowsThem(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		idle     bool
		err      error
		expected bool // counts as deleted
		again    bool // is sent again
	}{
		"done":                         {false, nil, true, false},
		"gone already":                 {false, apierrors.NewNotFound(pods, "web"), true, false},
		"the name is another's":        {false, apierrors.NewConflict(pods, "web", errors.New("uid")), true, false},
		"refused":                      {false, apierrors.NewForbidden(pods, "web", errors.New("no")), false, false},
		"told to come later":           {false, apierrors.NewTooManyRequests("later", 1), false, false},
		"no answer":                    {false, errors.New("connection reset"), true, true},
		"the apiserver lost its way":   {false, apierrors.NewInternalError(errors.New("etcd")), true, true},
		"the apiserver took too long":  {false, apierrors.NewTimeoutError("slow", 1), true, true},
		"nobody waited for the answer": {false, context.DeadlineExceeded, true, true},
		"idle, and done":               {true, nil, true, false},
		"idle, and not so any more":    {true, apierrors.NewConflict(pods, "web", errors.New("resourceVersion")), false, false},
		"idle, and no answer":          {true, errors.New("connection reset"), false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := newDeletions()
			pod := podAt("old")
			d.expect(pod)
			if !d.has(pod.UID) {
				t.Fatal("it has to count from before the request is sent")
			}
			d.answered(rollout.Deletion{Pod: pod, Idle: tt.idle}, tt.err)
			if got := d.has(pod.UID); got != tt.expected {
				t.Errorf("counts as deleted: %t, want %t", got, tt.expected)
			}
			if got := len(d.caughtUp([]*corev1.Pod{pod})) == 1; got != tt.again {
				t.Errorf("sent again: %t, want %t", got, tt.again)
			}
			if got := d.has(pod.UID); got != tt.expected {
				t.Errorf("while the watch is behind, it counts as deleted: %t, want %t", got, tt.expected)
			}
			other := podAt("new")
			other.UID = "another"
			d.caughtUp([]*corev1.Pod{other})
			if d.has(pod.UID) {
				t.Error("it still counts when the watch no longer shows it")
			}
		})
	}
}

func TestATerminatingPodIsNoLongerExpected(t *testing.T) {
	d := newDeletions()
	pod := podAt("old")
	d.expect(pod)
	d.answered(rollout.Deletion{Pod: pod}, errors.New("no answer"))
	going := pod.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: now}
	if again := d.caughtUp([]*corev1.Pod{going}); len(again) != 0 || d.has(pod.UID) {
		t.Errorf("sent again %v, expected %t", again, d.has(pod.UID))
	}
}

// What is under way when the controller stops gets its answer, if it comes soon.
func TestOutlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		longer, cancel := outlive(ctx, time.Second, time.Hour)
		defer cancel()
		stop()
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if longer.Err() != nil {
			t.Fatal("it ended before its time of grace")
		}
		time.Sleep(2 * time.Nanosecond)
		synctest.Wait()
		if longer.Err() == nil {
			t.Fatal("it goes on")
		}
		longer, cancel = outlive(t.Context(), time.Second, time.Minute)
		defer cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(longer.Err(), context.DeadlineExceeded) {
			t.Errorf("after its timeout it is %v", longer.Err())
		}
	})
}

func TestNodesAndPodsThatChangeInWaysARolloutReads(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n", Labels: map[string]string{"a": "b"}}}
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(before), LastHeartbeatTime: metav1.NewTime(before)},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		}
		change(n)
		trimmed, err := trimNode(n)
		if err != nil {
			t.Fatal(err)
		}
		return trimmed.(*corev1.Node)
	}
	same := node(func(*corev1.Node) {})
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat":       {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now) }, false},
		"another condition": {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }, false},
		"an annotation":     {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
		"not Ready":         {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"Ready once more":   {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now) }, true},
		"a label":           {func(n *corev1.Node) { n.Labels["a"] = "c" }, true},
		"a taint":           {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }, true},
		"another node":      {func(n *corev1.Node) { n.UID = types.UID("other") }, true},
	} {
		if got := nodeChanged(same, node(tt.change)); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}
