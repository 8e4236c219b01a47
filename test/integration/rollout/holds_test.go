package rollout_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

func TestAHeldPodIsKeptUntilItsHoldEnds(t *testing.T) {
	p := newPlay(t, 2, nil)
	c := p.start()
	p.Hold(p.Pods()["n3"], time.Hour, 0)
	p.SetImage("app:2")
	p.stands(rollout.ReasonHeldByOwner, slices.Concat(names(1, 2), names(4, nodes))...)
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonHeldByOwner,
		"9 of 10 nodes updated", "1 held by their owners (n3: held by its owner until ", ", at most until ", `("driving")`)
	p.AwaitEvent("RolloutHeld", "Normal", "1 held by their owners (n3")
	if got, _ := nodesIn(t, c, p.Namespace, rollout.HeldByOwner); got != 1 {
		t.Errorf("the metric has %v nodes that are held, want 1", got)
	}
	p.Hold(p.Pods()["n3"], 0, 0)
	p.Await("app:2", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
}

// The node's clock is wrong by years, and the hold is to last for longer than is permitted.
func TestAHoldEndsWhenThePolicyDoes(t *testing.T) {
	const most = 30 * time.Second // on a busy machine the rest is done before it ends, too
	for name, off := range map[string]time.Duration{"fast": 100_000 * time.Hour, "slow": -100_000 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			p := newPlay(t, nodes-1, map[string]string{upgrade.MaxHoldAnnotation: most.String()})
			p.start()
			pod := p.Pods()["n3"]
			p.Held(pod.UID, time.Now().Add(most))
			p.Hold(pod, time.Hour, off)
			p.SetImage("app:2")
			p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonHeldByOwner, "(n3")
			p.Await("app:2", nodes)
			p.awaitPodEvent(pod, "HoldEnded", upgrade.MaxHoldAnnotation+" of the DaemonSet permits 30s since ")
		})
	}
}

func TestPodsGetThePolicyOfTheirDaemonSet(t *testing.T) {
	p := newPlay(t, 2, nil)
	p.start()
	have := func(want string) func() bool {
		return func() bool {
			pods := p.Pods()
			for _, pod := range pods {
				if pod.Annotations[upgrade.PolicyAnnotation] != want {
					return false
				}
			}
			return len(pods) == nodes
		}
	}
	policy := upgrade.DefaultPolicy()
	policy.MaxHold = time.Hour
	p.Annotate(upgrade.MaxHoldAnnotation, "1h")
	poll.Eventually(t, "the pods have the policy", have(policy.Encode()))
	p.Annotate(upgrade.MaxHoldAnnotation, nil)
	poll.Eventually(t, "the pods have no policy, which is the default", have(""))
}
