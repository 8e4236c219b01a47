package controller_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
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
	f.AwaitCondition(rollout.CompleteCondition, corev1.ConditionFalse, rollout.ReasonWaitingForOwners, "0 of 3 nodes updated, 3 waiting for their owner")
	checkTarget(t, f, "app:2")

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
	f.AwaitCondition(rollout.CompleteCondition, corev1.ConditionFalse, rollout.ReasonWaitingForOwners, "1 of 3 nodes updated, 2 waiting")
	gauge := func(state string) float64 {
		n, _ := r.metric(t, "edgehub_controller_daemonset_pods", map[string]string{"namespace": f.Namespace, "daemonset": name, "state": state})
		return n
	}
	poll.Eventually(t, "the metric counts 2 and 1", func() bool { return gauge("needs_upgrade") == 2 && gauge("up_to_date") == 1 })

	// kubectl rollout undo: the pods that never left v1 are at the target again,
	// and the one that took v2 is not.
	all := f.uids()
	f.Kubectl("rollout", "undo", "daemonset/"+name)
	poll.Eventually(t, "all conditions are about "+v1, func() bool { // one pod after the other
		for _, pod := range f.pods() {
			if upgrade.RevisionOf(upgrade.Condition(pod, upgrade.NeedCondition)) != v1 {
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
	f.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete, v1, "3 of 3 nodes updated")
	if deleted := r.of(http.MethodDelete, ""); len(deleted) != 0 {
		t.Errorf("the controller deleted something: %v", deleted)
	}
	if described := f.Kubectl("describe", "daemonset", name); !strings.Contains(described, "2 of 3 pods need an upgrade") {
		t.Errorf("kubectl describe does not tell the story:\n%s", described)
	}
}

func TestAnOwnerWhoGoesBackIsCounted(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	start(t)
	f.await(map[string]int{upToDate: nodes})
	first := f.names()[0]
	v1 := hashOf(f.pods()[first])
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	for _, pod := range f.names() {
		f.replace(pod)
	}
	f.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	first = f.names()[0]
	wish := upgrade.Rollback{Revision: v1, From: hashOf(f.pods()[first])}
	f.patchStatus(first, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, upgrade.RollbackAnnotation, wish.Encode()))
	f.AwaitCondition(rollout.CompleteCondition, corev1.ConditionFalse, rollout.ReasonRolledBack, "2 of 3 nodes updated, 1 rolled back by their owners (")
}

// checkTarget checks the target of each pod.
func checkTarget(t *testing.T, f *fixture, image string) {
	t.Helper()
	for _, pod := range f.pods() {
		target, ok, err := upgrade.TargetOf(pod)
		if !ok || err != nil {
			t.Fatalf("target of pod %s: %t, %v", pod.Name, ok, err)
		}
		c := upgrade.Condition(pod, upgrade.NeedCondition)
		if target.Revision == hashOf(pod) || upgrade.RevisionOf(c) != target.Revision {
			t.Errorf("pod %s at %s has target %q and message %q", pod.Name, hashOf(pod), target.Revision, c.Message)
		}
		if target.Containers[0] != (upgrade.Image{Name: "app", Image: image}) ||
			target.InitContainers[0] != (upgrade.Image{Name: "init", Image: "init:1"}) || target.ImagePullSecrets[0] != "pull" {
			t.Errorf("pod %s has target %+v", pod.Name, target)
		}
		if c.LastTransitionTime.IsZero() {
			t.Errorf("pod %s: no lastTransitionTime", pod.Name)
		}
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	pod := f.names()[0]
	f.patchStatus(pod, `{"status":{"conditions":[{"type":"PodImageReady","status":"True","reason":"Pulled","message":"controllerrevision: x"}]}}`)
	start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	got := f.pods()[pod]
	if c := upgrade.Condition(got, upgrade.ImageCondition); c == nil || c.Reason != "Pulled" {
		t.Errorf("PodImageReady is %+v after the marking", c)
	}
	if upgrade.Condition(got, corev1.PodScheduled) == nil {
		t.Errorf("PodScheduled is gone: %+v", got.Status.Conditions)
	}
}

func TestNothingIsPatchedThatIsRight(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	first := start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	settled(t, first, f)
	// One patch for the first mark and one for the flip; no second try while the
	// watch catches up.
	if got := len(first.patches(f.Namespace)); got != 2*nodes {
		t.Errorf("got %d patches, want %d", got, 2*nodes)
	}
	first.stop()

	second := start(t)
	settled(t, second, f)
	if got := second.patches(f.Namespace); len(got) != 0 {
		t.Errorf("a controller that starts again sent %d patches, want none: %v", len(got), got)
	}
}

// settled waits until r has counted f's pods, and then looked at f again.
func settled(t *testing.T, r *running, f *fixture) {
	t.Helper()
	poll.Eventually(t, "the pods are counted", func() bool {
		n, ok := r.metric(t, "edgehub_controller_daemonset_pods", map[string]string{"namespace": f.Namespace, "state": "needs_upgrade"})
		return ok && n == nodes
	})
	lookAgain(t, r, f)
}

func TestAMarkThatSomebodyRemovesComesBack(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	f.Kubectl("annotate", "pod", f.names()[0], upgrade.TargetAnnotation+"-")
	f.await(map[string]int{needsOne: nodes})
}

func TestTheTargetFollowsASecondChange(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	// A time that no clock shows now, to see that it stays.
	const since = "2020-01-01T00:00:00Z"
	for _, pod := range f.names() {
		f.patchStatus(pod, `{"status":{"conditions":[{"type":"PodNeedUpgrade","lastTransitionTime":"`+since+`"}]}}`)
	}
	f.SetImage("app:3")
	poll.Eventually(t, "every pod names the newer image", func() bool {
		for _, pod := range f.pods() {
			if target, ok, err := upgrade.TargetOf(pod); !ok || err != nil || target.Containers[0].Image != "app:3" {
				return false
			}
		}
		return true
	})
	checkTarget(t, f, "app:3")
	for _, pod := range f.pods() {
		got := upgrade.Condition(pod, upgrade.NeedCondition).LastTransitionTime.UTC().Format(time.RFC3339)
		if got != since {
			t.Errorf("pod %s: lastTransitionTime moved to %s though the status did not flip", pod.Name, got)
		}
	}
}

// Whoever upgrades a pod on its node waits for as long, and may not read DaemonSets.
func TestTheTargetHasMinReadySeconds(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	for _, seconds := range []int32{7, 9, 0} { // it is no part of the revision
		f.Patch(`{"spec":{"minReadySeconds":%v}}`, seconds)
		poll.Eventually(t, fmt.Sprintf("every pod names %d seconds", seconds), func() bool {
			for _, pod := range f.pods() {
				if target, ok, err := upgrade.TargetOf(pod); !ok || err != nil || target.MinReadySeconds != seconds {
					return false
				}
			}
			return true
		})
	}
	checkTarget(t, f, "app:2")
}

func TestADaemonSetMadeAgainUnderTheSameName(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	ds := f.Get()
	f.Kubectl("delete", "daemonset", name, "--cascade=orphan")
	poll.Eventually(t, "the metric is gone", func() bool {
		_, ok := r.metric(t, "edgehub_controller_daemonset_pods", map[string]string{"namespace": f.Namespace})
		return !ok
	})
	poll.Eventually(t, "no watch is left", func() bool {
		return r.openWatches(f.Namespace, "pods")+r.openWatches(f.Namespace, "controllerrevisions") == 0
	})
	again := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{strategyKey: "OTA"}}, Spec: ds.Spec}
	again.Spec.Template.Spec.Containers[0].Image = "app:2"
	if _, err := env.admin.AppsV1().DaemonSets(f.Namespace).Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Kubernetes lets the new one adopt the pods of the old.
	f.await(map[string]int{needsOne: nodes})
}
