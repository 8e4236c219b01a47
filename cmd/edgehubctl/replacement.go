package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/internal/format"
	"github.com/edgehub-io/edgehub/cmd/internal/podstatus"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// replacement is a pod that comes in place of another one, made by the same owner.
type replacement struct {
	old    podName
	uid    types.UID // of the old pod
	owner  types.UID
	target string // the revision that it should be of
	// settle is how long it has to stay Ready to be called stable.
	settle time.Duration

	pod *corev1.Pod // once there is one
	// run is what the pod was at the last look, and ready when it was first seen so; zero
	// while it is not Ready.
	run   readiness
	ready time.Time
}

// newReplacement tells who is to follow pod, by the pods as they were before its upgrade.
// A node may not read DaemonSets: their minReadySeconds are in the target that the
// controller has written on the pod. Where it is 0, or the controller an older one, the
// replacement has to stay Ready for settle.
func newReplacement(before []*corev1.Pod, pod podName, settle time.Duration) (*replacement, error) {
	for _, p := range before {
		if p.Namespace != pod.namespace || p.Name != pod.name {
			continue
		}
		_, revision := needOf(p)
		if target, ok, err := upgrade.TargetOf(p); ok && err == nil && target.Revision == revision && target.MinReadySeconds > 0 {
			settle = time.Duration(target.MinReadySeconds) * time.Second
		}
		return &replacement{old: pod, uid: p.UID, owner: ownerOf(p), target: revision, settle: settle}, nil
	}
	return nil, fmt.Errorf("pod %s was not among the node's pods before its upgrade, so its successor cannot be told from others: look for it with %s pods", pod, name)
}

// check returns true once the replacement has been Ready for long enough, and else what is
// waited for. The pods are as they were at some time between asked and answered. It
// returns an error when the replacement fails to run.
func (s *replacement) check(pods []*corev1.Pod, asked, answered time.Time) (done bool, waiting string, err error) {
	old := s.find(pods)
	if s.pod != nil {
		return s.evaluate(asked, answered)
	}
	s.ready = time.Time{}
	switch {
	case old != nil && old.DeletionTimestamp == nil:
		return false, fmt.Sprintf("for pod %s to begin to end", s.old), nil
	case old != nil:
		return false, fmt.Sprintf("for pod %s to end", s.old), nil
	default:
		return false, fmt.Sprintf("for a pod in place of %s: the cloud makes it", s.old), nil
	}
}

// find sets s.pod, nil if there is no replacement, and returns the old pod if it is there.
func (s *replacement) find(pods []*corev1.Pod) (old *corev1.Pod) {
	s.pod = nil
	for _, p := range pods {
		switch {
		case p.UID == s.uid:
			old = p
		case p.Namespace != s.old.namespace || ownerOf(p) != s.owner || p.DeletionTimestamp != nil:
		case s.pod == nil || s.pod.CreationTimestamp.Before(&p.CreationTimestamp): // not the one that was evicted
			s.pod = p
		}
	}
	return old
}

// evaluate is for a replacement that is there.
func (s *replacement) evaluate(asked, answered time.Time) (done bool, waiting string, err error) {
	name := podName{s.pod.Namespace, s.pod.Name}
	if f := podstatus.FailureOf(s.pod); f != nil {
		return false, "", &broken{pod: s.pod, failure: f}
	}
	if !isReady(s.pod) {
		s.ready = time.Time{}
		return false, fmt.Sprintf("for pod %s to be Ready: %s", name, unready(s.pod)), nil
	}
	if now := readinessOf(s.pod); s.ready.IsZero() || now != s.run {
		s.run, s.ready = now, answered
	}
	if asked.Sub(s.ready) >= s.settle {
		return true, "", nil
	}
	waiting = fmt.Sprintf("for pod %s to stay Ready for %v", name, s.settle)
	if s.run.restarts > 0 {
		waiting += ", after " + plural(int(s.run.restarts), "restart")
	}
	return false, waiting, nil
}

// readiness identifies one period in which a pod is Ready: a pod that was
// restarted or not Ready in between is not stable, also where nobody looked meanwhile.
type readiness struct {
	uid      types.UID
	since    time.Time // by the clock of the node
	restarts int32
}

func readinessOf(pod *corev1.Pod) readiness {
	out := readiness{uid: pod.UID, restarts: podstatus.Restarts(pod)}
	if c := upgrade.Condition(pod, corev1.PodReady); c != nil {
		out.since = c.LastTransitionTime.UTC()
	}
	return out
}

// unready says what keeps pod from being Ready.
func unready(pod *corev1.Pod) string {
	if c := upgrade.Condition(pod, corev1.PodScheduled); c != nil && c.Status != corev1.ConditionTrue {
		return format.Joined(c.Reason, c.Message)
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
		return "waits: " + strings.Join(strings.Fields(format.Joined(s.State.Waiting.Reason, s.State.Waiting.Message)), " ")
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		return fmt.Sprintf("ended with exit code %d", s.State.Terminated.ExitCode)
	case s.State.Running != nil && !s.Ready:
		return "runs and is not ready"
	}
	return ""
}

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
