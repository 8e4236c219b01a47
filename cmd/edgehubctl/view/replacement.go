package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/internal/cli"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/podstatus"
)

// Replacement is a pod that comes in place of another one, made by the same owner. After a rollback it is
// the pod itself, with other images.
type Replacement struct {
	Old    types.NamespacedName
	UID    types.UID // of the old pod
	Owner  types.UID
	Target string // the revision that it should be of
	// keepsName is true for a pod of a StatefulSet: its successor, perhaps on another node, has its name.
	keepsName bool
	// Settle is how long it has to stay Ready to be called stable.
	Settle time.Duration
	// before is the pod before a rollback, nil for an upgrade.
	before *corev1.Pod

	Pod *corev1.Pod // once there is one
	// run is what the pod was at the last look. Ready is when it was first seen so, zero
	// while it is not Ready.
	run   readiness
	Ready time.Time
	// ended is the last pod in place of the old one that has failed as a whole; nil if none has.
	ended *corev1.Pod
}

// NewReplacement describes the pod that will replace pod, given the pods before the upgrade.
// A node may not read DaemonSets, so their minReadySeconds are in the target that the
// controller has written on the pod. If they are 0, the replacement has to stay Ready for settle.
func NewReplacement(before []*corev1.Pod, pod types.NamespacedName, settle time.Duration) (*Replacement, error) {
	old, err := podOf(before, pod, "upgrade")
	if err != nil {
		return nil, err
	}
	_, revision := needOf(old)
	if target, ok, err := api.TargetOf(old); ok && err == nil && target.Revision == revision && target.MinReadySeconds > 0 {
		settle = time.Duration(target.MinReadySeconds) * time.Second
	}
	owner := metav1.GetControllerOf(old)
	return &Replacement{
		Old: pod, UID: old.UID, Owner: ownerOf(old), Target: revision, Settle: settle,
		keepsName: owner != nil && owner.Kind == "StatefulSet",
	}, nil
}

// NewRollback describes pod once its rollback is done, given the pods before. Target is the revision that the cloud has; the
// caller may set another one.
func NewRollback(before []*corev1.Pod, pod types.NamespacedName, settle time.Duration) (*Replacement, error) {
	old, err := podOf(before, pod, "rollback")
	if err != nil {
		return nil, err
	}
	return &Replacement{Old: pod, UID: old.UID, Target: old.Labels[appsv1.ControllerRevisionHashLabelKey], Settle: settle, before: old}, nil
}

func podOf(before []*corev1.Pod, pod types.NamespacedName, action string) (*corev1.Pod, error) {
	i := slices.IndexFunc(before, func(p *corev1.Pod) bool { return p.Namespace == pod.Namespace && p.Name == pod.Name })
	if i < 0 {
		return nil, fmt.Errorf("pod %s was not among the node's pods before its %s, so its successor cannot be told from others: look for it with edgehubctl pods", pod, action)
	}
	return before[i], nil
}

// Check returns true once the replacement has been Ready for long enough, and otherwise what
// to wait for. The pods are from some time between asked and answered. Check returns an error
// when the replacement fails to run. One that kubelet rejects, or that is evicted, is waited out: its owner makes another
// one.
func (s *Replacement) Check(pods []*corev1.Pod, asked, answered time.Time) (done bool, waiting string, err error) {
	if s.before != nil {
		return s.checkRollback(pods, asked, answered)
	}
	old := s.find(pods)
	if s.Pod != nil {
		return s.evaluate(asked, answered)
	}
	s.Ready = time.Time{}
	switch {
	case old != nil && old.DeletionTimestamp == nil:
		return false, fmt.Sprintf("for pod %s to begin to end", s.Old), nil
	case old != nil:
		return false, fmt.Sprintf("for pod %s to end", s.Old), nil
	case s.keepsName:
		return false, fmt.Sprintf("for a pod in place of %s: the cloud makes it, perhaps on another node", s.Old) + s.afterEnded(), nil
	default:
		return false, fmt.Sprintf("for a pod in place of %s: the cloud makes it", s.Old) + s.afterEnded(), nil
	}
}

// afterEnded completes what is waited for by the pod that has failed.
func (s *Replacement) afterEnded() string {
	if s.ended == nil {
		return ""
	}
	what := "pod %s/%s has failed: %s"
	if _, rejected := podstatus.Ended(s.ended); rejected {
		what = "kubelet rejected pod %s/%s: %s"
	}
	return ", after " + fmt.Sprintf(what, s.ended.Namespace, s.ended.Name, podstatus.FailureOf(s.ended))
}

// Advice is what to do about a pod that has failed, when nobody waits for the next one any longer. It is "" if none has.
func (s *Replacement) Advice() string {
	if s.ended == nil {
		return ""
	}
	owner := metav1.GetControllerOf(s.ended)
	if owner == nil {
		owner = &metav1.OwnerReference{Kind: "DaemonSet", Name: "NAME"}
	}
	return fmt.Sprintf("kubelet does not try that pod again: the %s makes another one, after up to 15 minutes. Mend what the reason names (journalctl -u kubelet has more), or go back on all nodes: kubectl rollout undo %s/%s -n %s",
		owner.Kind, strings.ToLower(owner.Kind), owner.Name, s.ended.Namespace)
}

// checkRollback is Check for a rollback. The pod is Ready all the while, so it is also looked at whether
// the containers whose images change have been started since.
func (s *Replacement) checkRollback(pods []*corev1.Pod, asked, answered time.Time) (done bool, waiting string, err error) {
	if s.Pod = s.same(pods); s.Pod == nil {
		return false, "", fmt.Errorf("pod %s was deleted during its rollback: the cloud makes another one, of the newest revision", s.Old)
	}
	if revision := RevisionOf(s.Pod); revision != s.Target {
		waiting = fmt.Sprintf("for pod %s to be of revision %s: it is of %s", s.Old, s.Target, revision)
	} else if waiting = s.notRestarted(); waiting == "" {
		return s.evaluate(asked, answered)
	}
	s.Ready = time.Time{}
	return false, waiting, nil
}

// Passed is Check for a pod that was upgraded in place, which the hub has seen stay Ready.
func (s *Replacement) Passed(pods []*corev1.Pod, now time.Time) (done bool, waiting string, err error) {
	if s.Pod = s.same(pods); s.Pod == nil {
		return false, "", fmt.Errorf("pod %s was upgraded in place, and then deleted", s.Old)
	}
	s.Ready = now.Add(-s.Settle)
	return true, "", nil
}

// same returns the pod itself, or nil.
func (s *Replacement) same(pods []*corev1.Pod) *corev1.Pod {
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.UID == s.UID && p.DeletionTimestamp == nil })
	if i < 0 {
		return nil
	}
	return pods[i]
}

// notRestarted names a container that has not been started since its image was changed; it returns "" if
// there is none.
func (s *Replacement) notRestarted() string {
	statusOf := func(pod *corev1.Pod, name string) corev1.ContainerStatus {
		all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
		i := slices.IndexFunc(all, func(c corev1.ContainerStatus) bool { return c.Name == name })
		if i < 0 {
			return corev1.ContainerStatus{}
		}
		return all[i]
	}
	containersOf := func(pod *corev1.Pod) []corev1.Container { // of init containers, native sidecars may change
		return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	}
	for _, now := range containersOf(s.Pod) {
		changed := slices.ContainsFunc(containersOf(s.before), func(c corev1.Container) bool { return c.Name == now.Name && c.Image != now.Image })
		if status := statusOf(s.Pod, now.Name); changed && status.ContainerID == statusOf(s.before, now.Name).ContainerID {
			return cli.Joined(fmt.Sprintf("for container %s of pod %s to restart", now.Name, s.Old), podstatus.NotRunning(&status))
		}
	}
	return ""
}

// find sets s.Pod, to nil if there is no replacement, and returns the old pod, if it exists.
func (s *Replacement) find(pods []*corev1.Pod) (old *corev1.Pod) {
	s.Pod = nil
	for _, p := range pods {
		switch {
		case p.UID == s.UID:
			old = p
		case p.Namespace != s.Old.Namespace || ownerOf(p) != s.Owner || p.DeletionTimestamp != nil:
		case s.keepsName && p.Name != s.Old.Name: // another one of the StatefulSet
		case s.Pod == nil || s.Pod.CreationTimestamp.Before(&p.CreationTimestamp): // not the one that was evicted
			s.Pod = p
		}
	}
	return old
}

// evaluate is check for a replacement that exists.
func (s *Replacement) evaluate(asked, answered time.Time) (done bool, waiting string, err error) {
	name := types.NamespacedName{Namespace: s.Pod.Namespace, Name: s.Pod.Name}
	if ended, _ := podstatus.Ended(s.Pod); ended && s.before == nil {
		s.ended, s.Ready = s.Pod, time.Time{}
		return false, fmt.Sprintf("for another pod in place of %s: the cloud makes it", s.Old) + s.afterEnded(), nil
	}
	if f := podstatus.FailureOf(s.Pod); f != nil {
		return false, "", &cli.Error{Code: cli.Broken, Err: &broken{pod: s.Pod, failure: f, rolledBack: s.before != nil}}
	}
	if !podstatus.IsReady(s.Pod) {
		s.Ready = time.Time{}
		return false, fmt.Sprintf("for pod %s to be Ready: %s", name, podstatus.Unready(s.Pod)) + s.afterEnded(), nil
	}
	if now := readinessOf(s.Pod); s.Ready.IsZero() || now != s.run {
		s.run, s.Ready = now, answered
	}
	if asked.Sub(s.Ready) >= s.Settle {
		return true, "", nil
	}
	waiting = fmt.Sprintf("for pod %s to stay Ready for %v", name, s.Settle)
	if s.run.restarts > 0 {
		waiting += ", after " + cli.Plural(int(s.run.restarts), "restart")
	}
	return false, waiting, nil
}

// readiness identifies one period in which a pod is Ready. It differs after a restart, and
// after a time in which the pod was not Ready, even if nobody looked meanwhile.
type readiness struct {
	uid      types.UID
	since    time.Time // by the clock of the node
	restarts int32
}

func readinessOf(pod *corev1.Pod) readiness {
	out := readiness{uid: pod.UID, restarts: podstatus.Restarts(pod)}
	if c := api.Condition(pod, corev1.PodReady); c != nil {
		out.since = c.LastTransitionTime.UTC()
	}
	return out
}

// broken is the error of an upgrade whose new pod does not run, or of a rollback whose pod does not.
// kubelet goes on trying, but a person has to find the cause, or go back.
type broken struct {
	pod     *corev1.Pod
	failure *podstatus.Failure
	// rolledBack is true after a rollback.
	rolledBack bool
}

func (b *broken) Error() string {
	return fmt.Sprintf("pod %s/%s of revision %s does not run: %s. %s. %s",
		b.pod.Namespace, b.pod.Name, RevisionOf(b.pod), b.failure, b.look(), b.goBack())
}

// look returns the commands that show more.
func (b *broken) look() string {
	if !b.failure.Crashed || b.failure.Container == "" {
		return fmt.Sprintf("To find out more: kubectl describe pod %s -n %s", b.pod.Name, b.pod.Namespace)
	}
	out := fmt.Sprintf("Its log: kubectl logs %s -n %s -c %s", b.pod.Name, b.pod.Namespace, b.failure.Container)
	if b.failure.Restarting {
		out += " --previous"
	}
	return out + fmt.Sprintf(", or on this node sudo edgehubctl logs --previous %s/%s -c %s", b.pod.Namespace, b.pod.Name, b.failure.Container)
}

func (b *broken) goBack() string {
	owner := metav1.GetControllerOf(b.pod)
	if owner == nil {
		return "kubelet goes on trying"
	}
	if ended, _ := podstatus.Ended(b.pod); ended {
		return fmt.Sprintf("kubelet does not try it again: the %s makes a pod of the newest revision in its place", owner.Kind)
	}
	if b.rolledBack {
		return fmt.Sprintf("kubelet goes on trying; edgehubctl upgrade %s/%s replaces it by a pod of the newest revision", b.pod.Namespace, b.pod.Name)
	}
	return fmt.Sprintf("kubelet goes on trying; to go back on this node, edgehubctl rollback %s/%s; on all nodes, ask for a rollback (kubectl rollout undo %s/%s -n %s), and upgrade once more when edgehubctl pods shows that the pod needs it",
		b.pod.Namespace, b.pod.Name, strings.ToLower(owner.Kind), owner.Name, b.pod.Namespace)
}
