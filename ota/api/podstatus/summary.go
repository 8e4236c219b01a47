// Package podstatus sums up the status of a pod: in the words of kubectl get pods, so
// that both show the same for a pod, and why a pod fails to run.
//
// All functions are pure functions of a pod and safe for concurrent use.
package podstatus

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Summary has the columns READY, STATUS and RESTARTS of kubectl get pods.
type Summary struct {
	// Ready of Containers are ready. Sidecars, which are init containers that are
	// restarted, count as containers.
	Ready, Containers int
	// Status is the phase, or what keeps the pod from it: CrashLoopBackOff, Init:0/1.
	Status string
	// Restarts are those of init containers until the pod is initialized, and those of
	// containers and sidecars from then on.
	Restarts int32
}

// Of sums up pod. The rules are those by which the apiserver prints a pod for kubectl.
func Of(pod *corev1.Pod) Summary {
	s := Summary{Containers: len(pod.Spec.Containers), Status: statusOf(pod)}
	sidecars := sidecarsOf(pod)
	s.Containers += len(sidecars)
	initializing := s.addInitContainers(pod, sidecars)
	if !initializing || isTrue(pod, corev1.PodInitialized) {
		s.addContainers(pod, sidecars)
	}
	s.deleted(pod)
	return s
}

// statusOf is the status of a pod by itself, without that of its containers.
func statusOf(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			return c.Reason
		}
	}
	return cmp.Or(pod.Status.Reason, string(pod.Status.Phase))
}

// sidecarsOf are the init containers that run as long as the pod does, by name.
func sidecarsOf(pod *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			out[c.Name] = true
		}
	}
	return out
}

// addInitContainers returns true while an init container keeps the others waiting.
func (s *Summary) addInitContainers(pod *corev1.Pod, sidecars map[string]bool) (initializing bool) {
	for i := range pod.Status.InitContainerStatuses {
		c := &pod.Status.InitContainerStatuses[i]
		s.Restarts += c.RestartCount
		switch ended, waits := c.State.Terminated, c.State.Waiting; {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecars[c.Name] && c.Started != nil && *c.Started:
			if c.Ready {
				s.Ready++
			}
			continue
		case ended != nil:
			s.Status = "Init:" + endOf(ended)
		case waits != nil && waits.Reason != "" && waits.Reason != "PodInitializing":
			s.Status = "Init:" + waits.Reason
		default:
			s.Status = fmt.Sprintf("Init:%d/%d", i, len(pod.Spec.InitContainers))
		}
		return true
	}
	return false
}

// addContainers is for a pod that is initialized. The first container that does not run
// gives the pod its status.
func (s *Summary) addContainers(pod *corev1.Pod, sidecars map[string]bool) {
	s.Restarts = 0
	for i := range pod.Status.InitContainerStatuses {
		if c := &pod.Status.InitContainerStatuses[i]; sidecars[c.Name] {
			s.Restarts += c.RestartCount
		}
	}
	running, failure := false, ""
	for i := len(pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &pod.Status.ContainerStatuses[i]
		s.Restarts += c.RestartCount
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.Status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.Status = endOf(c.State.Terminated)
			if c.State.Terminated.ExitCode != 0 {
				failure = s.Status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.Ready++
		}
	}
	if s.Status == "Completed" {
		s.partlyCompleted(pod, running, failure)
	}
}

// partlyCompleted corrects the status of a pod with a completed container while others run or
// have failed.
func (s *Summary) partlyCompleted(pod *corev1.Pod, running bool, failure string) {
	switch {
	case running && isTrue(pod, corev1.PodReady):
		s.Status = "Running"
	case failure != "":
		s.Status = failure
	case running:
		s.Status = "NotReady"
	}
}

// nodeLost is the reason of a pod that is deleted because its node cannot be reached.
const nodeLost = "NodeLost"

func (s *Summary) deleted(pod *corev1.Pod) {
	over := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	switch {
	case pod.DeletionTimestamp == nil:
	case pod.Status.Reason == nodeLost:
		s.Status = "Unknown"
	case !over:
		s.Status = "Terminating"
	}
}

// endOf describes in a word how a container ended.
func endOf(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func isTrue(pod *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}
