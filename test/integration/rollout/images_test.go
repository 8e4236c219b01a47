package rollout_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// newPrepullPlay has images first, and a timeout that no test lives to see.
func newPrepullPlay(t *testing.T, most int, timeout string) *play {
	t.Helper()
	return newPlay(t, most, map[string]string{upgrade.PrepullAnnotation: "true", rollout.PrepullTimeoutAnnotation: timeout})
}

// targets are what the pods' nodes have to pull unasked, by node.
func (p *play) targets() map[string]upgrade.Target {
	p.t.Helper()
	out := map[string]upgrade.Target{}
	for node, pod := range p.Pods() {
		target, ok, err := upgrade.TargetOf(pod)
		if err != nil {
			p.t.Fatal(err)
		}
		if ok && target.Prepull != nil {
			out[node] = target
		}
	}
	return out
}

// awaitTargets waits until n nodes have to pull this image, and returns their targets.
func (p *play) awaitTargets(image string, n int) map[string]upgrade.Target {
	p.t.Helper()
	var out map[string]upgrade.Target
	poll.Eventually(p.t, fmt.Sprintf("%d nodes are told to pull %s", n, image), func() bool {
		out = p.targets()
		for _, target := range out {
			if target.Containers[0].Image != image {
				return false
			}
		}
		return len(out) == n
	})
	return out
}

// setImageReady sets the condition of the images of the nodes' target, as a hub would.
func (p *play) setImageReady(status corev1.ConditionStatus, reason string, nodes ...string) {
	p.t.Helper()
	pods := p.Pods()
	for _, node := range nodes {
		target, ok, err := upgrade.TargetOf(pods[node])
		if !ok || err != nil {
			p.t.Fatalf("the pod on %s: %t, %v", node, ok, err)
		}
		patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"conditions":[{"type":"PodImageReady","status":%q,"reason":%q,"message":"controllerrevision: %s"}]}}`,
			pods[node].UID, status, reason, target.Revision)
		_, err = s.Admin.CoreV1().Pods(p.Namespace).Patch(p.t.Context(), pods[node].Name, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}, "status")
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// keeps checks that nothing is deleted meanwhile.
func (p *play) keeps(deleted int, why string) {
	p.t.Helper()
	rest(3 * settle)
	if got := p.Deleted(); len(got) != deleted {
		p.t.Fatalf("the pods on %v were deleted, want %d: %s", got, deleted, why)
	}
}

func TestAPodIsKeptUntilItsImagesAreThere(t *testing.T) {
	p := newPrepullPlay(t, 2, "1h")
	c := p.start()
	before := c.Calls()
	p.SetImage("app:2")
	p.awaitTargets("app:2", nodes)
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionTrue, rollout.ReasonUpdating, "0 of 10 nodes updated, 10 pending (10 until their images are there)")
	p.AwaitEvent("RolloutStarted", "each keeps its pod until its images are there, for 1h0m0s at most")
	p.keeps(0, "no node has the images")
	if got := gauge(t, c, "edgehub_controller_rollout_nodes_awaiting_images", p.Namespace); got != nodes {
		t.Errorf("the metric says that %v nodes wait for images, want %d", got, nodes)
	}
	for _, pod := range p.Pods() {
		if upgrade.Condition(pod, upgrade.NeedCondition) != nil {
			t.Errorf("pod %s would let its owner upgrade it", pod.Name)
		}
	}
	if got := c.Calls()["PATCH pods/status"] - before["PATCH pods/status"]; got != nodes {
		t.Errorf("%d patches for %d pods", got, nodes)
	}

	p.setImageReady(corev1.ConditionFalse, "PrepullRegistryUnreachable", "n3")
	p.setImageReady(corev1.ConditionFalse, upgrade.ReasonPulling, "n4")
	p.keeps(0, "no node has all of them")
	last := p.inOrder()[nodes-1]
	p.setImageReady(corev1.ConditionTrue, upgrade.ReasonReady, last)
	p.Await("app:2", 1)
	if got := p.Deleted(); !slices.Equal(got, []string{last}) {
		t.Errorf("the pods on %v were deleted, want the one on %s", got, last)
	}
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionTrue, rollout.ReasonUpdating, "9 pending (9 until their images are there)")

	p.setImageReady(corev1.ConditionTrue, upgrade.ReasonReady, slices.DeleteFunc(p.inOrder(), func(n string) bool { return n == last })...)
	p.Await("app:2", nodes) // and the guard counts that at most two are away
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	if got := p.targets(); len(got) > 0 {
		t.Errorf("pods of the newest revision have their nodes pull: %v", got)
	}
}

func TestAfterTheTimeoutPodsGoWithoutTheirImages(t *testing.T) {
	p := newPrepullPlay(t, 3, "4s")
	p.start()
	p.SetImage("app:2")
	p.awaitTargets("app:2", nodes)
	begin := time.Now()
	poll.Eventually(t, "the first pods are deleted", func() bool { return len(p.Deleted()) > 0 })
	if took := time.Since(begin); took < 2*time.Second { // a time is in whole seconds
		t.Errorf("the first pod was deleted %v after its node was told to pull, want 4 s", took)
	}
	p.Await("app:2", nodes)
}

func TestWithoutTheAnnotationItGoesOn(t *testing.T) {
	p := newPrepullPlay(t, 1, "1h")
	p.start()
	p.SetImage("app:2")
	p.awaitTargets("app:2", nodes)
	p.Annotate(rollout.PartitionAnnotation, "9") // so that pods are left to be looked at
	p.Annotate(upgrade.PrepullAnnotation, "false")
	p.Await("app:2", 1)
	p.awaitTargets("app:2", 0)
	p.Annotate(upgrade.PrepullAnnotation, "true")
	p.awaitTargets("app:2", nodes-1)
	p.Annotate(upgrade.PrepullAnnotation, nil)
	p.Annotate(rollout.PartitionAnnotation, nil)
	p.Await("app:2", nodes)
}

func TestImagesOfTheRevisionBeforeDoNotCount(t *testing.T) {
	p := newPrepullPlay(t, nodes, "1h")
	p.start()
	p.Annotate(rollout.PausedAnnotation, "true")
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	p.SetImage("app:2")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused, "10 held")
	if got := p.targets(); len(got) > 0 {
		t.Errorf("nodes are told to pull while paused: %v", got)
	}
	p.Annotate(rollout.PausedAnnotation, nil)
	first := p.awaitTargets("app:2", nodes)
	p.Annotate(rollout.PausedAnnotation, "true")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused)
	if got := p.targets(); len(got) != nodes {
		t.Errorf("%d nodes pull on while paused, want all", len(got))
	}
	p.setImageReady(corev1.ConditionTrue, upgrade.ReasonReady, p.inOrder()...)
	rest(time.Second) // the times that follow are another second's
	p.SetImage("app:3")
	p.awaitTargets("app:3", 0)
	p.Annotate(rollout.PausedAnnotation, nil)
	for node, target := range p.awaitTargets("app:3", nodes) {
		if !target.Prepull.After(first[node].Prepull.Time) {
			t.Errorf("%s pulls since %v, want since after %v", node, target.Prepull, first[node].Prepull)
		}
	}
	p.keeps(0, "the images that are there are another revision's")
	p.setImageReady(corev1.ConditionTrue, upgrade.ReasonReady, p.inOrder()...)
	p.Await("app:3", nodes)
}

func TestAnotherControllerGoesOnWaiting(t *testing.T) {
	p := newPrepullPlay(t, 1, "1h")
	c := p.start()
	p.SetImage("app:2")
	first := p.awaitTargets("app:2", nodes)
	p.setImageReady(corev1.ConditionTrue, upgrade.ReasonReady, p.firsts(1)...)
	p.Await("app:2", 1)
	c.Kill()
	rest(time.Second)
	c = s.StartController(t, options(), p.Guard)
	poll.Eventually(t, "it counts those that wait", func() bool {
		return gauge(t, c, "edgehub_controller_rollout_nodes_awaiting_images", p.Namespace) == nodes-1
	})
	p.keeps(1, "the other images are not there")
	for node, target := range p.targets() {
		if !target.Prepull.Equal(first[node].Prepull) {
			t.Errorf("%s pulls since %v, and before since %v", node, target.Prepull, first[node].Prepull)
		}
	}
	if got := c.Calls()["PATCH pods/status"]; got > 0 {
		t.Errorf("%d patches of pods that had told their nodes", got)
	}
	p.setImageReady(corev1.ConditionTrue, upgrade.ReasonReady, slices.Collect(maps.Keys(p.targets()))...)
	p.Await("app:2", nodes)
}

// Each pod is patched once, though a step is taken before the watch shows the patches.
func TestALateWatchTellsNoNodeTwice(t *testing.T) {
	const late = 3 * time.Second
	p := newPrepullPlay(t, 1, "1h")
	c := p.start()
	c.Lag(late)
	before := c.Calls()["PATCH pods/status"]
	p.SetImage("app:2")
	rest(late / 2)
	p.Annotate(rollout.MaxUnavailableAnnotation, "2") // which is seen when the pods have their target, and nobody saw it
	first := p.awaitTargets("app:2", nodes)
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionTrue, rollout.ReasonUpdating, "10 until their images are there")
	rest(late)
	if got := c.Calls()["PATCH pods/status"] - before; got != nodes {
		t.Errorf("%d patches for %d pods", got, nodes)
	}
	for node, target := range p.targets() {
		if !target.Prepull.Equal(first[node].Prepull) {
			t.Errorf("%s pulls since %v, and before since %v", node, target.Prepull, first[node].Prepull)
		}
	}
	c.Lag(0)
}

func TestANodeThatIsAwayPullsWhenItIsBack(t *testing.T) {
	p := newPrepullPlay(t, 3, "4s")
	p.start()
	p.cutOff("n7")
	p.SetImage("app:2")
	p.awaitTargets("app:2", nodes)
	p.Await("app:2", nodes-1) // by the timeout
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonWaiting)
	p.connect("n7")
	poll.Eventually(t, "n7 is Ready", func() bool {
		return p.Condition(rollout.ProgressingCondition).Reason == rollout.ReasonUpdating
	})
	begin := time.Now()
	poll.Eventually(t, "n7's pod is deleted", func() bool { return slices.Contains(p.Deleted(), "n7") })
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("it was deleted %v after n7 was back, want 4 s", took)
	}
	p.Await("app:2", nodes)
}

func TestPodsStopTellingWhenAnotherStrategyIsAskedFor(t *testing.T) {
	const strategy = "apps.openyurt.io/update-strategy"
	p := newPrepullPlay(t, nodes, "1h")
	p.start()
	p.SetImage("app:2")
	first := p.awaitTargets("app:2", nodes)
	needed := func(n int) func() bool {
		return func() bool {
			got := 0
			for _, pod := range p.Pods() {
				if c := upgrade.Condition(pod, upgrade.NeedCondition); c != nil && c.Status == corev1.ConditionTrue {
					got++
				}
			}
			return got == n
		}
	}
	rest(time.Second) // a time that is written anew is another one
	p.Annotate(strategy, "OTA")
	poll.Eventually(t, "owners are told", needed(nodes))
	p.Annotate(strategy, "AdvancedRollingUpdate")
	poll.Eventually(t, "owners are told nothing", needed(0))
	p.keeps(0, "no node has the images")
	for node, target := range p.awaitTargets("app:2", nodes) {
		if !target.Prepull.Equal(first[node].Prepull) {
			t.Errorf("%s pulls since %v, and before since %v", node, target.Prepull, first[node].Prepull)
		}
	}
	p.Annotate(strategy, nil)
	p.awaitTargets("app:2", 0)
	p.AwaitEvent("UpgradeMarksRemoved", "Normal", "10 pods no longer have their nodes pull images")
}

func TestAWrongPrepullIsAnsweredAndNothingIsDeleted(t *testing.T) {
	for key, value := range map[string]string{upgrade.PrepullAnnotation: "yes", rollout.PrepullTimeoutAnnotation: "0"} {
		t.Run(key, func(t *testing.T) {
			p := newPlay(t, nodes, nil, func(ds *appsv1.DaemonSet) { ds.Annotations[key] = value })
			s.StartController(t, options(), p.Guard)
			p.AwaitCondition(rollout.InvalidCondition, corev1.ConditionTrue, rollout.ReasonInvalid, fmt.Sprintf("%s is %q", key, value))
			p.AwaitEvent("InvalidUpdateStrategy", "Warning", key)
			p.SetImage("app:2")
			p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonInvalid)
			p.keeps(0, "the annotations are wrong")
			p.Annotate(key, nil)
			p.Await("app:2", nodes)
			p.AwaitCondition(rollout.InvalidCondition, corev1.ConditionFalse, rollout.ReasonAccepted)
		})
	}
}
