package podstatus

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// IsReady reports whether a pod has the condition Ready.
func IsReady(pod *corev1.Pod) bool { return isTrue(pod, corev1.PodReady) }

// Unready returns why a pod is not Ready, in one line.
func Unready(pod *corev1.Pod) string {
	if c := conditionOf(pod, corev1.PodScheduled); c != nil && c.Status != corev1.ConditionTrue {
		return joined(c.Reason, oneLine(c.Message))
	}
	var out []string
	for _, s := range statuses(pod) {
		if why := NotRunning(&s); why != "" {
			out = append(out, "container "+s.Name+" "+why)
		}
	}
	switch ready := conditionOf(pod, corev1.PodReady); {
	case len(out) > 0:
		return strings.Join(out, "; ")
	case len(pod.Status.ContainerStatuses) == 0:
		return "the kubelet has not begun with it"
	case ready != nil && ready.Message != "":
		return oneLine(ready.Message)
	}
	return "its phase is " + string(pod.Status.Phase)
}

// NotRunning returns why a container is not ready, "" if it is.
func NotRunning(s *corev1.ContainerStatus) string {
	switch {
	case s.State.Waiting != nil:
		return "waits: " + joined(s.State.Waiting.Reason, oneLine(s.State.Waiting.Message))
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		return fmt.Sprintf("ended with exit code %d", s.State.Terminated.ExitCode)
	case s.State.Running != nil && !s.Ready:
		return "runs and is not ready"
	}
	return ""
}

// conditionOf returns pod's condition of type t, or nil.
func conditionOf(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
