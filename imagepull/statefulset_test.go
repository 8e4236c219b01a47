package imagepull

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/retention"
)

// ofStatefulSet makes pod one of a StatefulSet. Its name does not determine its UID.
func ofStatefulSet(uid types.UID, pod *corev1.Pod) *corev1.Pod {
	pod.UID = uid
	pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].Name, pod.OwnerReferences[0].UID = "StatefulSet", "db", "uid-db"
	return pod
}

// The next pod of a StatefulSet has the same name and another UID, and others of the StatefulSet may
// run on the same node.
func TestImagesAreHeldUntilThePodOfTheSameNameUsesThem(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(ofStatefulSet("first", oldPod("db-0", "v2", "app")), ofStatefulSet("other", oldPod("db-1", "v2", "app")))
		n.ask(t, "db-0")
		pass(2 * pullTime)
		want(t, "the engine", n.engine.took(), "pull app")
		want(t, "the pod", n.cloud.condition("db-0"), "True PrepullReady v2")

		n.cloud.remove("db-0")
		pass(time.Second)
		n.cloud.set(ofStatefulSet("other2", newPod("db-1", "v2", true)))
		pass(time.Second)
		want(t, "when another pod of the StatefulSet is upgraded", n.engine.took(), "")
		n.cloud.set(ofStatefulSet("second", newPod("db-0", "v2", false)))
		pass(time.Second)
		want(t, "before its containers are there", n.engine.took(), "")
		want(t, "its successor, which has no pre-pull", n.cloud.condition("db-0"), "nothing")
		if s, ok := n.State(types.NamespacedName{Namespace: "ns", Name: "db-0"}); !ok || s.UID != "first" {
			t.Errorf("the pre-pull names UID %q, %t; want that of the pod that it is for", s.UID, ok)
		}
		n.restart(t)
		want(t, "after a restart then", n.engine.took(), "keep app")

		n.cloud.set(ofStatefulSet("second", newPod("db-0", "v2", true)))
		pass(time.Second)
		want(t, "when they are", n.engine.took(), "release app")
		want(t, "the queue", fmt.Sprint(n.States()), "[]")

		n.cloud.set(ofStatefulSet("second", oldPod("db-0", "v3", "app:3")))
		n.ask(t, "db-0")
		pass(2 * pullTime)
		want(t, "the next revision", n.shows("db-0"), "Ready: app:3=Ready")
		want(t, "the pod", n.cloud.condition("db-0"), "True PrepullReady v3")
	})
}

// Without the cloud nobody makes the next pod, and with it, it may be on another node.
func TestImagesOfAPodThatMovedToAnotherNodeAreLetGo(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wanted := target("v2", "app")
		wanted.Prepull = &metav1.Time{Time: time.Now()}
		n.cloud.set(ofStatefulSet("first", podWith("db-0", wanted)))
		pass(10*time.Second + 2*pullTime)
		want(t, "unasked", n.shows("db-0"), "Ready: app=Ready")
		n.cloud.remove("db-0")
		pass(orphaned - time.Minute)
		if got := n.engine.took(); strings.Contains(got, "release") {
			t.Errorf("too early: %s", got)
		}
		pass(time.Minute + retention.CheckInterval)
		if got := n.engine.took(); !strings.Contains(got, "release app") {
			t.Errorf("never let go: %s", got)
		}
	})
}
