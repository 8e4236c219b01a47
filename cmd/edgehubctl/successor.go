package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/internal/words"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// successor is a pod that comes in place of another one, made by the same owner.
type successor struct {
	old    podName
	uid    types.UID // of the old pod
	owner  types.UID
	target string      // the revision that it should be of
	pod    *corev1.Pod // once there is one
}

// succession tells who is to follow pod, by the pods as they were before its upgrade.
func succession(before []*corev1.Pod, pod podName) (*successor, error) {
	for _, p := range before {
		if p.Namespace == pod.namespace && p.Name == pod.name {
			_, target := needOf(p)
			return &successor{old: pod, uid: p.UID, owner: ownerOf(p), target: target}, nil
		}
	}
	return nil, fmt.Errorf("pod %s was not among the node's pods before its upgrade, so its successor cannot be told from others: look for it with %s pods", pod, name)
}

// look returns true once the successor is Ready, and else what is waited for.
func (s *successor) look(pods []*corev1.Pod) (done bool, waiting string) {
	s.pod = nil
	var old *corev1.Pod
	for _, p := range pods {
		switch {
		case p.UID == s.uid:
			old = p
		case p.Namespace == s.old.namespace && ownerOf(p) == s.owner && p.DeletionTimestamp == nil:
			s.pod = p
		}
	}
	switch {
	case s.pod != nil && isReady(s.pod):
		return true, ""
	case s.pod != nil:
		return false, fmt.Sprintf("for pod %s/%s to be Ready: %s", s.pod.Namespace, s.pod.Name, unready(s.pod))
	case old != nil && old.DeletionTimestamp == nil:
		return false, fmt.Sprintf("for pod %s to begin to end", s.old)
	case old != nil:
		return false, fmt.Sprintf("for pod %s to end", s.old)
	default:
		return false, fmt.Sprintf("for a pod in place of %s: the cloud makes it", s.old)
	}
}

// unready says what keeps pod from being Ready.
func unready(pod *corev1.Pod) string {
	if c := upgrade.Condition(pod, corev1.PodScheduled); c != nil && c.Status != corev1.ConditionTrue {
		return words.Joined(c.Reason, c.Message)
	}
	var out []string
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if why := notRunning(&statuses[i]); why != "" {
				out = append(out, "container "+statuses[i].Name+" "+why)
			}
		}
	}
	switch ready := upgrade.Condition(pod, corev1.PodReady); {
	case len(out) > 0:
		return strings.Join(out, "; ")
	case len(pod.Status.ContainerStatuses) == 0:
		return "the kubelet has not begun with it"
	case ready != nil && ready.Message != "":
		return ready.Message
	}
	return "its phase is " + string(pod.Status.Phase)
}

// notRunning says what keeps a container from being ready, "" if nothing does.
func notRunning(s *corev1.ContainerStatus) string {
	switch {
	case s.State.Waiting != nil:
		return "waits: " + strings.Join(strings.Fields(words.Joined(s.State.Waiting.Reason, s.State.Waiting.Message)), " ")
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		return fmt.Sprintf("ended with exit code %d", s.State.Terminated.ExitCode)
	case s.State.Running != nil && !s.Ready:
		return "runs and is not ready"
	}
	return ""
}
