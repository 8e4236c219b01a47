package imagepull

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Invariant 4, as far as it is ours, and the end of it.
func TestImagesAreHeldUntilTheNewPodUsesThem(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		want(t, "the engine", n.engine.took(), "pull app")

		deleting := oldPod("web-1", "v2", "app")
		deleting.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		n.cloud.set(deleting)
		pass(time.Second)
		n.cloud.remove("web-1")
		pass(time.Second)
		n.cloud.set(newPod("web-2", "v2", false))
		pass(time.Second)
		want(t, "before its containers are there", n.engine.took(), "")
		n.restart(t)
		want(t, "after a restart then", n.engine.took(), "keep app")

		n.cloud.set(newPod("web-2", "v2", true))
		pass(time.Second)
		want(t, "when they are", n.engine.took(), "release app")
		want(t, "the queue", fmt.Sprint(n.States()), "[]")
	})
}

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

		n.cloud.remove("db-0")
		pass(time.Second)
		n.cloud.set(ofStatefulSet("other2", newPod("db-1", "v2", true)), ofStatefulSet("second", newPod("db-0", "v2", false)))
		pass(time.Second)
		want(t, "while only another pod is upgraded", n.engine.took(), "")
		want(t, "its successor, which has no pre-pull", n.cloud.condition("db-0"), "nothing")
		if s, ok := n.State(types.NamespacedName{Namespace: "ns", Name: "db-0"}); !ok || s.UID != "first" {
			t.Errorf("the pre-pull names UID %q, %t; want that of the pod that it is for", s.UID, ok)
		}
		n.restart(t)
		want(t, "after a restart then", n.engine.took(), "keep app")

		n.cloud.set(ofStatefulSet("second", newPod("db-0", "v2", true)))
		pass(time.Second)
		want(t, "when its containers are there", n.engine.took(), "release app")
		n.cloud.set(ofStatefulSet("second", oldPod("db-0", "v3", "app:3")))
		n.ask(t, "db-0")
		pass(2 * pullTime)
		want(t, "the next revision", n.shows("db-0"), "Ready: app:3=Ready")
		want(t, "the pod", n.cloud.condition("db-0"), "True PrepullReady v3")
	})
}

// Somebody undid the rollout, or the next pod is on another node. Without the cloud nobody makes the next pod.
func TestImagesOfAPodWithoutSuccessorAreLetGo(t *testing.T) {
	for name, pods := range map[string][2]*corev1.Pod{
		"of a DaemonSet":   {oldPod("web-1", "v2", "app"), newPod("web-2", "v1", true)},
		"of a StatefulSet": {ofStatefulSet("first", oldPod("db-0", "v2", "app")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.cloud.set(pods[0])
				n.ask(t, pods[0].Name)
				pass(2 * pullTime)
				n.cloud.remove(pods[0].Name)
				if pods[1] != nil {
					n.cloud.set(pods[1])
				}
				pass(orphaned / 2)
				n.cloud.be(true)
				pass(24 * time.Hour)
				n.cloud.be(false)
				pass(orphaned - time.Minute) // which begins anew
				if got := n.engine.took(); strings.Contains(got, "release") {
					t.Errorf("too early: %s", got)
				}
				pass(2*time.Minute + checkInterval)
				if got := n.engine.took(); !strings.Contains(got, "release app") {
					t.Errorf("never let go: %s", got)
				}
			})
		})
	}
}

// Invariant 5.
func TestWhatNobodyWantsIsLetGoAtTheStart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.stop()
		n.engine.held["left"] = true
		n.engine.absent = true
		n.begin(t, 1)
		want(t, "without containerd", n.engine.took(), "")
		n.engine.setAbsent(false)
		pass(sweepRetry + time.Second)
		want(t, "with it", n.engine.took(), "release left")
	})
}

// namesOf are the names by which an image may be removed.
func namesOf(image engineapi.Image) map[string]string {
	name, _, _ := strings.Cut(image.Name, ":")
	return map[string]string{"name": image.Name, "ID": image.ID, "digest": name + "@" + image.Target.Digest.String()}
}

func TestWhatSomebodyRemovesIsPutBack(t *testing.T) {
	image := imageOf("app")
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		n.engine.took()
		for how, removed := range namesOf(image) {
			n.engine.remove <- "another"
			n.engine.remove <- removed
			synctest.Wait()
			want(t, "the engine, when it is removed by its "+how, n.engine.took(), "keep app")
		}
		n.engine.set(func() { n.engine.lost[image.Name] = true })
		n.engine.remove <- image.ID
		pass(pullTime / 2)
		want(t, "the engine, when the content is gone", n.engine.took(), "keep app, pull app")
		want(t, "the pod, then", n.cloud.condition("web-1"), "False PrepullPulling v2")
		pass(pullTime)
		want(t, "at last", n.shows("web-1"), "Ready: app=Ready")
	})
}

// The engine is not asked to keep an image while it pulls it again.
func TestAnImageThatIsRemovedDuringAPullIsPutBackThen(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		n.engine.die("app", engineapi.Unreachable, pullTime)
		n.ask(t, "web-1")
		pass(pullTime / 2)
		n.engine.remove <- imageOf("app").Name
		n.engine.took()
		synctest.Wait()
		want(t, "the engine, meanwhile", n.engine.took(), "")
		pass(pullTime)
		want(t, "the engine, then", n.engine.took(), "keep app")
	})
}

func TestAnImageThatIsGoneIsGoneAfterARestart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		n.engine.die("app", engineapi.Unreachable, pullTime)
		n.engine.set(func() { n.engine.lost[imageOf("app").Name] = true })
		n.engine.remove <- imageOf("app").Name
		pass(pullTime / 2)
		n.restart(t)
		want(t, "state", n.shows("web-1"), "Pulling: app=Pulling")
	})
}

func TestReadyImagesAreLookedForNowAndThen(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		n.engine.took()
		pass(checkInterval)
		want(t, "the engine", n.engine.took(), "keep app")
	})
}
