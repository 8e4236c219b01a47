package imagepull

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/imagepull/retention"
)

// Invariant 4, as far as it is ours, and the end of it.
func TestImagesAreHeldUntilTheNewPodUsesThem(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
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

func TestImagesOfAPodWithoutSuccessorAreLetGo(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		n.cloud.remove("web-1")
		n.cloud.set(newPod("web-2", "v1", true)) // somebody undid the rollout
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

// Invariant 5.
func TestWhatNobodyWantsIsLetGoAtTheStart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.stop()
		n.engine.held["left"] = true
		n.engine.absent = true
		n.begin(t, 1)
		want(t, "without containerd", n.engine.took(), "")
		n.engine.mu.Lock()
		n.engine.absent = false
		n.engine.mu.Unlock()
		pass(retention.RetryInterval + time.Second)
		want(t, "with it", n.engine.took(), "release left")
	})
}

func TestWhatSomebodyRemovesIsPutBack(t *testing.T) {
	image := imageOf("app")
	for name, removed := range map[string]string{
		"by its name": image.Name, "by its ID": image.ID, "by its digest": "docker.io/library/app@" + image.Target.Digest.String(),
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.cloud.set(oldPod("web-1", "v2", "app"))
				n.ask(t, "web-1")
				pass(2 * pullTime)
				n.engine.took()
				n.engine.remove <- "another"
				n.engine.remove <- removed
				synctest.Wait()
				want(t, "the engine", n.engine.took(), "keep app")

				n.engine.mu.Lock()
				n.engine.lost[image.Name] = true
				n.engine.mu.Unlock()
				n.engine.remove <- removed
				pass(pullTime / 2)
				want(t, "the engine, when the content is gone", n.engine.took(), "keep app, pull app")
				want(t, "the pod, then", n.cloud.condition("web-1"), "False PrepullPulling v2")
				pass(pullTime)
				want(t, "at last", n.shows("web-1"), "Ready: app=Ready")
			})
		})
	}
}

func TestReadyImagesAreLookedForNowAndThen(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"))
		n.ask(t, "web-1")
		pass(2 * pullTime)
		n.engine.took()
		pass(retention.CheckInterval)
		want(t, "the engine", n.engine.took(), "keep app")
	})
}
