package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

// unscheduledPod is one that the DaemonSet controller made for a node and that the
// scheduler finds no room for.
func unscheduledPod(node string) *corev1.Pod {
	pod := podAt("old")
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			},
		}}},
	}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/10 nodes"},
	}
	return pod
}

func TestATrimmedPodKeepsTheNodeThatItIsFor(t *testing.T) {
	trimmed := func(pod *corev1.Pod) *corev1.Pod {
		t.Helper()
		out, err := trimPod(pod)
		if err != nil {
			t.Fatal(err)
		}
		return out.(*corev1.Pod)
	}
	before := trimmed(unscheduledPod("n1"))
	if got := rollout.NodeOf(before); got != "n1" {
		t.Errorf("it is for node %q, want n1", got)
	}
	gated := unscheduledPod("n1")
	gated.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
	if !podChanged(before, trimmed(gated)) {
		t.Error("that it waits for something else now goes unnoticed")
	}
	reworded := unscheduledPod("n1")
	reworded.Status.Conditions[0].Message = "0/11 nodes"
	if podChanged(before, trimmed(reworded)) {
		t.Error("the scheduler's words change all the time, and are taken for a change")
	}
	scheduled := unscheduledPod("n1")
	scheduled.Spec.NodeName = "n1"
	if after := trimmed(scheduled); after.Spec.Affinity != nil || !podChanged(before, after) {
		t.Errorf("once it is scheduled, its affinity %v is of no use, and the change is one", after.Spec.Affinity)
	}
}
