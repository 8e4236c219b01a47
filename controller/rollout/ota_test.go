package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

func TestTheConditionOfOTA(t *testing.T) {
	tests := map[string]struct {
		change          func(*world) // of two nodes, n1 with an old pod and n2 with a new one
		is              bool
		reason, message string
	}{
		"owners have yet to upgrade": {func(*world) {}, false, ReasonWaitingForOwners, "1 of 2 nodes updated, 1 waiting for their owner"},
		"every node is updated":      {func(w *world) { w.upgrade("n1", true) }, true, ReasonComplete, "2 of 2 nodes updated"},
		"a node is away with its old pod": {func(w *world) { w.turn("n1", corev1.ConditionUnknown) }, false, ReasonWaitingForOwners,
			"1 of 2 nodes updated, 1 waiting for their owner"},
		"a node is away with its new pod": {func(w *world) {
			w.upgrade("n1", false)
			w.turn("n1", corev1.ConditionUnknown)
		}, true, ReasonComplete, "2 of 2 nodes updated"},
		"a node is away without a pod": {func(w *world) {
			w.remove("n1")
			w.turn("n1", corev1.ConditionUnknown)
		}, false, ReasonUpdating, "1 of 2 nodes updated, 1 unavailable (n1: node is not Ready, no pod)"},
		"a new pod is not Ready": {func(w *world) { w.upgrade("n1", false) }, false, ReasonUpdating,
			"1 of 2 nodes updated, 1 unavailable (n1: pod is not Ready)"},
		"an old pod is not Ready":        {func(w *world) { w.ready(w.on("n1").UID, false) }, false, ReasonWaitingForOwners, "1 of 2 nodes updated, 1 waiting for their owner"},
		"an old pod is not yet anywhere": {func(w *world) { w.unschedule("n1") }, false, ReasonUpdating, "1 of 2 nodes updated, 1 unavailable (n1: pod is not scheduled: Unschedulable)"},
		"a pod is being replaced":        {func(w *world) { w.remove("n1") }, false, ReasonUpdating, "1 of 2 nodes updated, 1 unavailable (n1: no pod)"},
		"one waits, and one is being replaced": {func(w *world) { w.remove("n2") }, false, ReasonWaitingForOwners,
			"0 of 2 nodes updated, 1 unavailable (n2: no pod), 1 waiting for their owner"},
		"a node would get no new pod": {func(w *world) {
			n := w.nodes["n1"].DeepCopy()
			n.Spec.Taints = []corev1.Taint{{Key: "line", Value: "3", Effect: corev1.TaintEffectNoSchedule}}
			w.nodes["n1"] = n
		}, true, ReasonHeldByPlacement, "complete, 1 pod held by placement (node n1 has the taint line=3:NoSchedule, which the new version does not tolerate)"},
		"its owner went back": {func(w *world) { w.rolledBack = []string{"n1"} }, false, ReasonRolledBack,
			"1 of 2 nodes updated, 1 rolled back by their owners (n1)"},
		"one owner went back, and another has yet to upgrade": {func(w *world) {
			w.rolledBack = []string{"n1"}
			w.remove("n2")
			w.addPod("n2", oldRevision, true)
		}, false, ReasonWaitingForOwners, "0 of 2 nodes updated, 1 waiting for their owner, 1 rolled back by their owners (n1)"},
		"options of rollouts do not count": {func(w *world) { w.ds.Annotations[api.PartitionAnnotation] = "2" }, false, ReasonWaitingForOwners,
			"1 of 2 nodes updated, 1 waiting for their owner"},
		"no node should run it": {func(w *world) {
			w.remove("n1")
			w.remove("n2")
			clear(w.nodes)
		}, true, ReasonComplete, "no node should run this daemon"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			w.upgrade("n2", true)
			tt.change(w)
			p := NewOTAPlan(w.input())
			c := OTACondition(&p)
			if (c.Status == corev1.ConditionTrue) != tt.is || c.Type != api.CompleteCondition || c.Reason != tt.reason || c.Message != "controllerrevision new: "+tt.message {
				t.Errorf("got %s=%s %s: %s\nwant %t %s: %s", c.Type, c.Status, c.Reason, c.Message, tt.is, tt.reason, tt.message)
			}
			if len(p.Delete)+len(p.Pulls) > 0 {
				t.Errorf("%d pods are deleted and %d pull images with OTA", len(p.Delete), len(p.Pulls))
			}
		})
	}
}

func TestANewPodWithOTAIsAvailableAfterMinReadySeconds(t *testing.T) {
	w := newWorld(t, 1)
	w.ds.Spec.MinReadySeconds = 60
	w.upgrade("n1", true)
	p := NewOTAPlan(w.input())
	if p.Complete() || !p.Wake.Equal(w.now.Add(time.Minute)) {
		t.Errorf("complete: %t, to be looked at again at %v, want a minute after %v", p.Complete(), p.Wake, w.now)
	}
	w.pass(time.Minute)
	if p := NewOTAPlan(w.input()); !p.Complete() {
		t.Errorf("got %s", p.Summary())
	}
}
