package rollout

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// NodeOf returns the name of the node that pod runs on or, while the scheduler has not
// placed it, of the node that it was created for: the DaemonSet controller names that
// node in a required node affinity on the field metadata.name. It is "" for a pod that
// names no node, or more than one, as in GetTargetNodeName in Kubernetes'
// pkg/controller/daemon/util.
func NodeOf(pod *corev1.Pod) string {
	if scheduled(pod) {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key != metav1.ObjectNameField || field.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if len(field.Values) != 1 {
				return ""
			}
			return field.Values[0]
		}
	}
	return ""
}

// scheduled reports whether pod has been bound to its node. Until then, the node's kubelet
// and hub do not know it.
func scheduled(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }

// unscheduled returns a short reason why pod is not scheduled.
func unscheduled(pod *corev1.Pod) string {
	c := upgrade.Condition(pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason == "" {
		return "pod is not scheduled"
	}
	return "pod is not scheduled: " + quotable(c.Reason)
}
