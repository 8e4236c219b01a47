package main

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/podstatus"
)

// broken is the end of an upgrade whose new pod does not run. kubelet goes on trying, but
// it takes a person to find out what is wrong, or to go back.
type broken struct {
	pod     *corev1.Pod
	failure *podstatus.Failure
}

func (b *broken) Error() string {
	return fmt.Sprintf("pod %s/%s of revision %s does not run: %s. %s. %s",
		b.pod.Namespace, b.pod.Name, revisionOf(b.pod), b.failure, b.look(), b.goBack())
}

// look says where to find out more.
func (b *broken) look() string {
	if !b.failure.Crashed || b.failure.Container == "" {
		return fmt.Sprintf("To find out more: kubectl describe pod %s -n %s", b.pod.Name, b.pod.Namespace)
	}
	out := fmt.Sprintf("Its log: kubectl logs %s -n %s -c %s", b.pod.Name, b.pod.Namespace, b.failure.Container)
	if b.failure.Restarting {
		out += " --previous"
	}
	if id := b.containerID(); id != "" {
		out += ", or on this node crictl logs " + id
	}
	return out
}

// containerID is that of the container that ended, as crictl takes it.
func (b *broken) containerID() string {
	if b.failure.LastEnd == nil {
		return ""
	}
	_, id, _ := strings.Cut(b.failure.LastEnd.ContainerID, "://")
	const enough = 13 // as crictl itself prints them
	return id[:min(len(id), enough)]
}

func (b *broken) goBack() string {
	owner := metav1.GetControllerOf(b.pod)
	if owner == nil {
		return "kubelet goes on trying"
	}
	return fmt.Sprintf("kubelet goes on trying; to go back, ask for a rollback (kubectl rollout undo daemonset/%s -n %s), and upgrade once more when %s pods shows that the pod needs it",
		owner.Name, b.pod.Namespace, name)
}
