package controller_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// prepulls waits until n pods have their nodes pull this image unasked, and returns
// since when, by pod.
func (f *fixture) prepulls(image string, n int) map[string]time.Time {
	f.t.Helper()
	var out map[string]time.Time
	poll.Eventually(f.t, "the pods tell their nodes to pull", func() bool {
		out = map[string]time.Time{}
		for _, pod := range f.pods() {
			target, ok, err := upgrade.TargetOf(pod)
			if ok && err == nil && target.Containers[0].Image == image && target.Prepull != nil {
				out[pod.Name] = target.Prepull.Time
			}
		}
		return len(out) == n
	})
	return out
}

// The whole life of images first, for owners who decide when.
func TestWithImagesFirstOwnersFindThemThere(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA", upgrade.PrepullAnnotation: "true"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	first := f.prepulls("app:2", nodes)
	checkTarget(t, f, "app:2")
	sent := len(r.patches(f.Namespace))

	// What the node reports of its images, and a restart, change nothing.
	pod := f.names()[0]
	f.patchStatus(pod, `{"status":{"conditions":[{"type":"PodImageReady","status":"True","reason":"PrepullReady","message":"`+
		upgrade.Condition(f.pods()[pod], upgrade.NeedCondition).Message+`"}]}}`)
	r.stop()
	<-time.After(time.Second) // a time that is written anew is another one
	again := start(t)
	settled(t, again, f)
	if got := len(again.patches(f.Namespace)); got != 0 || sent != 2*nodes {
		t.Errorf("%d patches, and %d after a restart; want %d and none", sent, got, 2*nodes)
	}
	for name, since := range f.prepulls("app:2", nodes) {
		if !since.Equal(first[name]) {
			t.Errorf("pod %s: since %v, and before since %v", name, since, first[name])
		}
	}

	// The owner's upgrade, and a second change.
	f.replace(pod)
	f.await(map[string]int{upToDate: 1, needsOne: nodes - 1})
	f.prepulls("app:2", nodes-1)
	f.SetImage("app:3")
	for name, since := range f.prepulls("app:3", nodes) {
		if !since.After(first[name]) {
			t.Errorf("pod %s: since %v for another revision, before since %v", name, since, first[name])
		}
	}
}

func TestImagesFirstCanComeLaterAndGo(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: nodes})
	f.prepulls("app:2", 0)
	f.Annotate(upgrade.PrepullAnnotation, "true")
	f.prepulls("app:2", nodes)
	f.Annotate(upgrade.PrepullAnnotation, nil)
	f.prepulls("app:2", 0)
	f.await(map[string]int{needsOne: nodes})
}

func TestAWrongPrepullIsAnswered(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA", upgrade.PrepullAnnotation: "yes", rollout.PrepullTimeoutAnnotation: "not read with OTA"})
	start(t)
	f.AwaitEvent("InvalidUpdateStrategy", "Warning", upgrade.PrepullAnnotation+` is "yes"`, "true or false")
	invalid := func(want corev1.ConditionStatus) func() bool {
		return func() bool {
			for _, c := range f.Get().Status.Conditions {
				if c.Type == rollout.InvalidCondition {
					return c.Status == want
				}
			}
			return false
		}
	}
	poll.Eventually(t, "the condition says so", invalid(corev1.ConditionTrue))
	if f.marks()[unmarked] != nodes {
		t.Errorf("pods were marked: %v", f.marks())
	}
	f.Annotate(upgrade.PrepullAnnotation, "True")
	f.await(map[string]int{upToDate: nodes})
	poll.Eventually(t, "the condition says that it is settled", invalid(corev1.ConditionFalse))
}
