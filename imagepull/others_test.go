package imagepull

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func (n *node) put(images ...string) {
	n.engine.set(func() {
		for _, image := range images {
			n.engine.there[imageName(image)] = true
		}
	})
}

func TestOtherImagesAreRetainedWhileTheyAreWanted(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.put("old")
		n.retain("old", "absent")
		pass(time.Second)
		want(t, "the engine", n.engine.took(), "keep old")
		if !n.Retained("old") || n.Retained("absent") || n.Retained("another") {
			t.Error("one of three images is retained")
		}
		if n.Missing("old") || !n.Missing("absent") {
			t.Error("one of two images is missing")
		}

		n.put("absent") // somebody has pulled it
		pass(checkInterval)
		// Two timers end at this time, and each may cause a sweep.
		calls := slices.Compact(strings.Split(sorted(n.engine.took()), ", "))
		want(t, "the engine, later", strings.Join(calls, ", "), "keep absent, keep old")
		if !n.Retained("absent") {
			t.Error("an image that arrived later is not retained")
		}

		n.restart(t)
		want(t, "the engine, after a restart", sorted(n.engine.took()), "keep absent, keep old")
		n.retain("old")
		pass(time.Second)
		want(t, "the engine, when one is not wanted any more", n.engine.took(), "keep old, release absent")
	})
}

// As the kubelet's garbage collection does where containerd does not support pinning. The content is still there.
func TestAnotherImageThatSomebodyRemovesIsPutBack(t *testing.T) {
	image := imageOf(imageName("old"))
	onNode(t, func(t *testing.T, n *node) {
		n.put("old")
		n.retain("old")
		pass(time.Second)
		want(t, "the engine", n.engine.took(), "keep old")

		n.engine.set(func() { delete(n.engine.there, image.Name) })
		for how, removed := range namesOf(image) {
			n.engine.remove <- "another"
			n.engine.remove <- removed
			synctest.Wait()
			want(t, "the engine, when its record is removed by its "+how, n.engine.took(), "keep old")
			if !n.Retained("old") || n.Missing("old") {
				t.Error("an image that was put back does not count as retained")
			}
		}
		n.engine.set(func() { n.engine.lost[image.Name] = true })
		n.engine.remove <- image.Name
		synctest.Wait()
		if n.Retained("old") || !n.Missing("old") {
			t.Error("an image whose content is gone does not count as missing")
		}
	})
}

// The job has pulled another image than the one that the tag points to.
func TestAnImageOfAJobIsLeftToTheJobAndThenRetained(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.put("app")
		n.wanted(t, "web-1", "v2", "app")
		n.retain("app")
		pass(2 * pullTime)
		want(t, "the engine", n.engine.took(), "pull app")
		if !n.Retained("app") {
			t.Error("the job's image does not count as retained")
		}
		n.cloud.remove("web-1")
		n.cloud.set(newPod("web-2", "v2", true))
		pass(time.Second)
		want(t, "when the job has ended", n.engine.took(), "keep app")
		if !n.Retained("app") {
			t.Error("it is not retained when the job has ended")
		}
	})
}

func TestOtherImagesAreRetainedOnceContainerdIsThere(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.put("old")
		n.engine.setAbsent(true)
		n.retain("old")
		pass(time.Second)
		if n.Retained("old") {
			t.Error("it counts as retained without containerd")
		}
		if n.Missing("old") {
			t.Error("it counts as missing without containerd")
		}
		n.engine.setAbsent(false)
		pass(sweepRetry)
		want(t, "the engine, with containerd", n.engine.took(), "keep old")
	})
}

// Nobody needs them now, and what is pinned cannot be removed by kubelet before it evicts pods.
func TestOtherImagesAreLetGoWhenTheDiskIsAlmostFull(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.put("old")
		n.retain("old")
		pass(time.Second)
		want(t, "the engine", n.engine.took(), "keep old")
		n.wanted(t, "web-1", "v2", "app")
		pass(2 * pullTime)
		want(t, "the engine, which pulls", n.engine.took(), "pull app")

		n.engine.set(func() { n.engine.full = true })
		pass(checkInterval)
		calls := n.engine.took()
		if !strings.Contains(calls, "release old") || strings.Contains(calls, "release app") {
			t.Errorf("the engine, when the disk is almost full: %s", calls)
		}
		if n.Retained("old") || n.Missing("old") {
			t.Error("an image that may go counts as retained, or as gone")
		}
		n.engine.set(func() { n.engine.full = false })
		pass(checkInterval)
		if calls := n.engine.took(); !strings.Contains(calls, "keep old") || !n.Retained("old") {
			t.Errorf("the engine, with room again: %s", calls)
		}
	})
}
