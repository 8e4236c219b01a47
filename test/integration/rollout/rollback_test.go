package rollout_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// awaitPodEvent waits for an Event on a pod, which may be gone.
func (p *play) awaitPodEvent(pod *corev1.Pod, reason, words string) {
	p.t.Helper()
	poll.Eventually(p.t, fmt.Sprintf("an Event %s on pod %s", reason, pod.Name), func() bool {
		list, err := s.Admin.CoreV1().Events(p.Namespace).List(p.t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Pod,involvedObject.uid=" + string(pod.UID) + ",reason=" + reason})
		return err == nil && len(list.Items) == 1 && strings.Contains(list.Items[0].Message, words)
	})
}

func hash(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// awaitPod waits until the pod on a node is as it should be.
func (p *play) awaitPod(node, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	p.t.Helper()
	var pod *corev1.Pod
	defer func() {
		if p.t.Failed() && pod != nil {
			p.t.Logf("not: %s: pod %s with %v, annotations %v, conditions %v", what, pod.UID, pod.Labels, pod.Annotations, pod.Status.Conditions)
		}
	}()
	poll.Eventually(p.t, what, func() bool {
		pod = p.Pods()[node]
		return pod != nil && holds(pod)
	})
	return pod
}

// rolledBack waits for the controller's answer to an owner's wish.
func (p *play) rolledBack(node string, status corev1.ConditionStatus, reason string) *corev1.Pod {
	p.t.Helper()
	return p.awaitPod(node, fmt.Sprintf("PodRolledBack is %s, %s", status, reason), func(pod *corev1.Pod) bool {
		c := upgrade.Condition(pod, upgrade.RolledBackCondition)
		return c != nil && c.Status == status && c.Reason == reason
	})
}

// newRollback is a play with the newest image app:2, in which owners may go back, and the hashes of app:1 and app:2.
// The policy of deploy/admission is in force.
func newRollback(t *testing.T) (p *play, v1, v2 string) {
	t.Helper()
	for _, file := range []string{"controller.yaml", "controller-binding.yaml"} {
		if _, err := s.Cluster.Kubectl(t.Context(), "apply", "-f", filepath.Join(moduleRoot, "deploy", "admission", file)); err != nil {
			t.Fatal(err)
		}
	}
	p = newPlay(t, 3, map[string]string{upgrade.OwnerRollbackAnnotation: upgrade.RollbackAllowed})
	p.start()
	v1 = hash(p.Pods()["n1"])
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	return p, v1, hash(p.Pods()["n1"])
}

// The DaemonSet controller keeps the pod that was patched, does not count it as updated, and keeps its revision; its
// owner can upgrade it again.
func TestAnOwnerGoesBackAndUpgradesAgain(t *testing.T) {
	p, v1, v2 := newRollback(t)
	before, deleted := p.Pods()["n3"], len(p.Deleted())
	p.RollBack(before, v1, v2)
	back := p.rolledBack("n3", corev1.ConditionTrue, "RolledBackByOwner")
	if back.UID != before.UID || hash(back) != v1 || back.Spec.Containers[0].Image != "app:1" {
		t.Errorf("the pod is %s with %s and hash %s; want %s, app:1 and %s", back.UID, back.Spec.Containers[0].Image, hash(back), before.UID, v1)
	}
	p.awaitPodEvent(before, "RolledBack", "controllerrevision "+v1)
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonRolledBack,
		"9 of 10 nodes updated", "1 rolled back by their owners (n3)")
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionFalse, rollout.ReasonRolledBack)
	poll.Eventually(t, "the DaemonSet controller counts the pod as not updated", func() bool {
		ds := p.Get()
		return ds.Status.UpdatedNumberScheduled == nodes-1 && ds.Status.CurrentNumberScheduled == nodes
	})
	rest(3 * settle)
	if got := p.Pods()["n3"]; got == nil || got.UID != before.UID || len(p.Deleted()) != deleted {
		t.Errorf("the pod was replaced, or another: deleted %v", p.Deleted()[deleted:])
	}
	p.awaitPod("n3", "its owner can upgrade it", func(pod *corev1.Pod) bool {
		need := upgrade.Condition(pod, upgrade.NeedCondition)
		target, ok, err := upgrade.TargetOf(pod)
		return need != nil && need.Status == corev1.ConditionTrue && need.Reason == "RolledBackByOwner" && ok && err == nil && target.Revision == v2
	})
	if err := s.Admin.CoreV1().Pods(p.Namespace).Delete(t.Context(), before.Name, metav1.DeleteOptions{}); err != nil { // as its hub does
		t.Fatal(err)
	}
	p.Await("app:2", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
}

func TestARollbackEndsWithTheNextRevision(t *testing.T) {
	p, v1, v2 := newRollback(t)
	p.RollBack(p.Pods()["n3"], v1, v2)
	p.rolledBack("n3", corev1.ConditionTrue, "RolledBackByOwner")
	p.SetImage("app:3")
	p.Await("app:3", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
}

// Whoever has the rights of a node can write any annotation to its pods.
func TestRollbacksThatAreRefused(t *testing.T) {
	p, v1, v2 := newRollback(t)
	p.Patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"app:3","env":[{"name":"A","value":"B"}]}]}}}}`)
	p.Await("app:3", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	pods, deleted := p.Pods(), len(p.Deleted())
	v3 := hash(pods["n1"])
	p.RollBack(pods["n1"], v1, v3)
	p.RollBack(pods["n2"], v1, v2)
	p.RollBack(pods["n3"], "never", v3)
	for node, reason := range map[string]string{"n1": "NotInPlace", "n2": "NewerRevision", "n3": "UnknownRevision"} {
		pod := p.rolledBack(node, corev1.ConditionFalse, reason)
		if pod.UID != pods[node].UID || hash(pod) != v3 || pod.Spec.Containers[0].Image != "app:3" {
			t.Errorf("the pod on %s was changed: %s with hash %s", node, pod.Spec.Containers[0].Image, hash(pod))
		}
		p.awaitPodEvent(pod, "RollbackRefused", "")
	}
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	if len(p.Deleted()) != deleted {
		t.Errorf("deleted %v", p.Deleted()[deleted:])
	}
}
