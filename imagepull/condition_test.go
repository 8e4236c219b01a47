package imagepull

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Invariant 6, as far as it is ours.
func TestThePodIsToldOnceTheCloudIsBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.cloud.be(true)
		n.ask(t, "web-1")
		pass(time.Minute)
		want(t, "state", n.shows("web-1"), "Ready: app=Ready")
		want(t, "the pod, while the cloud is away", n.cloud.condition("web-1"), "nothing")
		n.cloud.be(false)
		pass(time.Second)
		want(t, "the pod", n.cloud.condition("web-1"), "True PrepullReady v2")
	})
}

// Without the cloud, the pod shows the condition for longer than it counts.
func TestACancelledPrePullHasNoCondition(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(pullTime / 2)
		n.cloud.be(true)
		if _, err := n.Cancel(web1); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		want(t, "the pod", n.cloud.condition("web-1"), "False PrepullPulling v2")
		if got := n.Conditions(n.cloud.pods["web-1"]); len(got) != 1 || got[0].Status != "" {
			t.Errorf("it should have %v", got)
		}
	})
}

func TestConditionsOfOthersStay(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := oldPod("web-1", "v2", "app")
		pod.Status.Conditions = []corev1.PodCondition{{
			Type: api.ImageCondition, Status: corev1.ConditionFalse, Reason: "Somebody", Message: api.Message("v2"),
		}}
		n.cloud.set(pod)
		pass(time.Minute)
		want(t, "the pod", n.cloud.condition("web-1"), "False Somebody v2")
		n.ask(t, "web-1")
		pass(2 * pullTime)
		want(t, "the pod, once we are asked", n.cloud.condition("web-1"), "True PrepullReady v2")
	})
}
