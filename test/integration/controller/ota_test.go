package controller_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

func hashOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// The whole life of an upgrade, with nothing restarted by the controller.
func TestAnUpgradeAndItsUndo(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	v1 := hashOf(f.pods()[f.names()[0]])
	f.AwaitEvent("UpToDate", "Normal", v1)
	f.Kubectl("wait", "--for=condition=RolloutComplete", "daemonset/"+name, "--timeout=5m")

	before := f.uids()
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	f.AwaitEvent("UpgradeAvailable", "Normal", "3 of 3 pods")
	f.AwaitCondition(api.CompleteCondition, corev1.ConditionFalse, rollout.ReasonWaitingForOwners, "0 of 3 nodes updated, 3 waiting for their owner")
	checkTarget(t, f, "app:2")
	f.Kubectl("annotate", "pod", f.names()[0], api.TargetAnnotation+"-") // somebody's mistake
	f.await(map[string]int{needsOne: nodes})

	// The node of the first pod takes it.
	first := f.names()[0]
	f.replace(first)
	f.await(map[string]int{upToDate: 1, needsOne: nodes - 1})
	for uid := range f.uids() {
		delete(before, uid)
	}
	if len(before) != 1 {
		t.Errorf("%d pods were replaced, want the one that was deleted", len(before))
	}
	f.AwaitEvent("UpgradeAvailable", "2 of 3 pods")
	f.AwaitCondition(api.CompleteCondition, corev1.ConditionFalse, rollout.ReasonWaitingForOwners, "1 of 3 nodes updated, 2 waiting")

	// kubectl rollout undo: the pods that never left v1 are at the target again,
	// and the one that took v2 is not.
	all := f.uids()
	f.Kubectl("rollout", "undo", "daemonset/"+name)
	poll.Eventually(t, "all conditions are about "+v1, func() bool { // one pod after the other
		for _, pod := range f.pods() {
			if api.RevisionOf(api.Condition(pod, api.NeedCondition)) != v1 {
				return false
			}
		}
		return true
	})
	f.await(map[string]int{upToDate: nodes - 1, needsOne: 1})
	for _, pod := range f.pods() {
		if !all[pod.UID] {
			t.Errorf("pod %s was restarted by an undo", pod.Name)
		}
	}
	for _, pod := range f.names() {
		if hashOf(f.pods()[pod]) != v1 {
			f.replace(pod)
		}
	}
	f.AwaitCondition(api.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete, v1, "3 of 3 nodes updated")
	if n := r.Calls()["DELETE pods"]; n != 0 {
		t.Errorf("the controller deleted %d pods", n)
	}
	if described := f.Kubectl("describe", "daemonset", name); !strings.Contains(described, "2 of 3 pods need an upgrade") {
		t.Errorf("kubectl describe does not tell the story:\n%s", described)
	}
}

// checkTarget checks the target of each pod.
func checkTarget(t *testing.T, f *fixture, image string) {
	t.Helper()
	for _, pod := range f.pods() {
		target, ok, err := api.TargetOf(pod)
		if !ok || err != nil {
			t.Fatalf("target of pod %s: %t, %v", pod.Name, ok, err)
		}
		c := api.Condition(pod, api.NeedCondition)
		if target.Revision == hashOf(pod) || api.RevisionOf(c) != target.Revision {
			t.Errorf("pod %s at %s has target %q and message %q", pod.Name, hashOf(pod), target.Revision, c.Message)
		}
		if target.Containers[0] != (api.TargetImage{Name: "app", Image: image}) ||
			target.InitContainers[0] != (api.TargetImage{Name: "init", Image: "init:1"}) || target.ImagePullSecrets[0] != "pull" {
			t.Errorf("pod %s has target %+v", pod.Name, target)
		}
		if c.LastTransitionTime.IsZero() {
			t.Errorf("pod %s: no lastTransitionTime", pod.Name)
		}
	}
}

// Kubernetes lets the new one adopt the pods of the old.
func TestADaemonSetMadeAgainUnderTheSameName(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	start(t)
	f.await(map[string]int{upToDate: nodes})
	f.Remake(true)
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
}
