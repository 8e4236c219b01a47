package imagepull

import (
	"log/slog"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/podfiles"
)

// The kubelet resolves a tag whenever it restarts a container. Until the old pod ends, the tag must point
// to the image that this pod runs.
func TestATagIsSetOnceTheOldPodEnds(t *testing.T) {
	ends := map[string]func(n *node){
		"deleted gracefully": func(n *node) {
			pod := oldPod("web-1", "v2", "app", "side")
			pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			n.cloud.set(pod)
		},
		"removed at once": func(n *node) { n.cloud.remove("web-1") },
	}
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.wanted(t, "web-1", "v2", "app", "side")
				pass(time.Hour)
				n.ask(t, "web-1")
				pass(time.Hour)
				n.restart(t)
				pass(time.Hour)
				want(t, "tags that were set while the old pod runs", n.engine.tagged(), "")

				end(n)
				pass(0)
				want(t, "tags that were set at its end", sorted(n.engine.tagged()), "app, side")
				n.cloud.set(newPod("web-2", "v2", false))
				pass(time.Minute)
				want(t, "tags that were set again", n.engine.tagged(), "")
			})
		})
	}
}

// The hub may be away when the pod is deleted, and containerd when the hub is back.
func TestATagIsSetAfterARestart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.cloud.set(oldPod("web-1", "v2", "app"), oldPod("web-2", "v2", "other"))
		n.ask(t, "web-1")
		n.ask(t, "web-2")
		pass(time.Minute)
		n.stop()
		n.cloud.remove("web-1")
		n.engine.setAbsent(true)
		n.begin(t, 1)
		pass(time.Minute)
		n.engine.setAbsent(false)
		pass(tagRetry)
		want(t, "tags", n.engine.tagged(), "app")
	})
}

// The clock of a node without a battery starts in the past.
func TestATagIsSetWhereTheClockWasSetBack(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pass(48 * time.Hour)
		n.wanted(t, "web-1", "v2", "app")
		pass(time.Minute)
		n.stop()
		files, jobs, err := podfiles.Open[job](n.dir, slog.New(slog.DiscardHandler))
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		for key, j := range jobs {
			j.Requested = j.Requested.Add(24 * time.Hour)
			if err := files.Put(key, j); err != nil {
				t.Fatal(err)
			}
		}
		n.cloud.remove("web-1")
		n.begin(t, 1)
		pass(time.Minute)
		want(t, "tags", n.engine.tagged(), "app")
	})
}

// The watch may not have shown the requested pod yet.
func TestATagIsNotSetForAPodThatIsNotSeenYet(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pass(500 * time.Millisecond)
		n.cloud.set(oldPod("web-2", "v2", "other"))
		pass(100 * time.Millisecond)
		pod := oldPod("web-1", "v2", "app")
		if err := n.Request(pod, target("v2", "app"), false); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		want(t, "tags before the pod is seen", n.engine.tagged(), "")
		n.cloud.set(pod)
		pass(time.Minute)
		want(t, "tags while it runs", n.engine.tagged(), "")
	})
}

func TestATagIsNotSetForAPullThatWasCancelled(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		wanted := target("v2", "app")
		wanted.Prepull = &metav1.Time{Time: time.Now()}
		n.cloud.set(podWith("web-1", wanted))
		pass(time.Minute)
		if was, err := n.Cancel(web1); !was || err != nil {
			t.Fatal(was, err)
		}
		n.cloud.remove("web-1")
		pass(time.Minute)
		want(t, "tags", n.engine.tagged(), "")
	})
}

// An image that becomes ready while the pod ends is still for the next pod.
func TestATagIsSetForAnImageThatIsLate(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.wanted(t, "web-1", "v2", "app")
		pass(pullTime / 2)
		n.cloud.remove("web-1")
		pass(pullTime)
		want(t, "tags", n.engine.tagged(), "app")
	})
}
