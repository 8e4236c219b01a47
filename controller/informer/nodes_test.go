package informer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestNodesAndPodsThatChangeInWaysARolloutReads(t *testing.T) {
	node := func(change func(*corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n", Labels: map[string]string{"a": "b"}}}
		n.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0), LastHeartbeatTime: metav1.Unix(1, 0)},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
		}
		change(n)
		return trimNode(n)
	}
	same := node(func(*corev1.Node) {})
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat":       {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Unix(2, 0) }, false},
		"another condition": {func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue }, false},
		"an annotation":     {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
		"not Ready":         {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, true},
		"Ready once more":   {func(n *corev1.Node) { n.Status.Conditions[0].LastTransitionTime = metav1.Unix(2, 0) }, true},
		"a label":           {func(n *corev1.Node) { n.Labels["a"] = "c" }, true},
		"a taint":           {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} }, true},
		"another kubelet":   {func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.32.0" }, true},
		"another node":      {func(n *corev1.Node) { n.UID = types.UID("other") }, true},
	} {
		if got := nodesDiffer(same, node(tt.change)); got != tt.want {
			t.Errorf("%s: got %t, want %t", name, got, tt.want)
		}
	}
}
