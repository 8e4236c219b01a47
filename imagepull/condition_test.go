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
