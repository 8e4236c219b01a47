package rollout_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

func TestOldPodsThatServeNobodyGoAndNoOther(t *testing.T) {
	p := newPlay(t, 1, nil)
	p.start()
	p.fail("n4", "n6", "n8")
	p.broken("app:2")
	p.SetImage("app:2")
	p.stands(rollout.ReasonUpdating, "n4", "n6", "n8")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionTrue, rollout.ReasonUpdating, "3 unavailable", "container app: ImagePullBackOff", "7 pending")
	s.Fleet.Mend("app:2")
	p.Await("app:2", nodes)
}

func TestNodesWithoutAPodUseUpTheMaximum(t *testing.T) {
	p := newPlay(t, 3, map[string]string{rollout.PausedAnnotation: "true"})
	p.start()
	p.SetImage("app:2")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused)
	if err := s.Cluster.ControllerManager().Freeze(); err != nil { // nobody makes pods
		t.Fatal(err)
	}
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			if err := s.Cluster.ControllerManager().Cont(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(thaw)
	now := int64(0)
	for _, n := range names(1, 3) {
		p.Fault(n)
		if err := s.Admin.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Pods()[n].Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused, "3 unavailable")
	p.Annotate(rollout.PausedAnnotation, "false")
	p.stands(rollout.ReasonUpdating)
	thaw()
	p.Await("app:2", nodes)
}

func TestThePercentageIsOfTheReadyNodes(t *testing.T) {
	p := newPlay(t, 1, map[string]string{rollout.MaxUnavailableAnnotation: "50%"})
	c := p.start()
	p.cutOff(names(3, 10)...)
	t.Cleanup(func() { _ = c.Stop() }) // before the nodes are back, of which half may be unavailable
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	p.broken("app:2")
	p.SetImage("app:2")
	p.stands(rollout.ReasonUpdating, p.first("n1", "n2"))
}

func TestAMissingNodeObjectHoldsUpNothing(t *testing.T) {
	p := newPlay(t, 2, nil)
	p.start()
	if err := s.Fleet.RemoveNode(t.Context(), "n5"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Fleet.AddNode(context.Background(), "n5", map[string]string{"name": "n5"}); err != nil {
			t.Error(err)
		}
	})
	p.SetImage("app:2")
	p.Await("app:2", nodes-1)
	if slices.Contains(p.Deleted(), "n5") {
		t.Error("the pod of the missing node was deleted")
	}
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete, "9 of 9 nodes updated")
}

// Each step has to wait for a pod to go, to come and to be Ready, which here takes
// a fraction of a second, and for nothing else.
func TestMeasuredTheNextStepFollowsAtOnce(t *testing.T) {
	p := newPlay(t, 1, nil)
	p.start()
	begin := time.Now()
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	took := time.Since(begin)
	t.Logf("%d nodes, one at a time: %v", nodes, took)
	if limit := nodes * time.Second; took > limit {
		t.Errorf("it took %v, want less than %v", took, limit)
	}
	p.AwaitEvent("RolloutStarted", "Normal", "0 of 10 nodes updated", "at most 1 of 10 Ready nodes")
	p.AwaitEvent("RolloutComplete", "Normal", "10 of 10 nodes updated", "done in")
	p.Kubectl("wait", "--for=condition=RolloutComplete", "daemonset/"+rolloutenv.Name, "--timeout=30s")
}

func TestANodeThatBecomesReadyIsUpgradedThoughNothingElseChanges(t *testing.T) {
	// Its status does not depend on the taints of nodes that are away.
	p := newPlay(t, 3, nil, func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	p.start()
	p.cutOff("n7")
	p.SetImage("app:2")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonWaiting, "9 of 10", "1 waiting until their node is Ready (n7)")
	p.AwaitEvent("RolloutWaiting", "Normal", "n7")

	// Its pod stays Ready all the while, and so does the DaemonSet's status.
	ready := func() bool {
		got := p.Get()
		return int(got.Status.NumberReady) == nodes && int(got.Status.DesiredNumberScheduled) == nodes
	}
	poll.Eventually(t, "Kubernetes counts all pods as Ready", ready)
	p.connect("n7")
	p.Await("app:2", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
}

// Kubernetes leaves the pod that runs under a taint of a later time, and would start no other there.
func TestTheRolloutIsCompleteWithoutPodsHeldByPlacement(t *testing.T) {
	p := newPlay(t, 5, nil)
	c := p.start()
	taint := func(taint string) {
		t.Helper()
		if _, err := s.Admin.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), "n4", types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"taints":[%s]}}`, taint), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { taint("") })
	taint(`{"key":"dedicated","value":"line3","effect":"NoSchedule"}`)
	p.SetImage("app:2")
	p.Await("app:2", nodes-1)
	const held = "complete, 1 pod held by placement (node n4 has the taint dedicated=line3:NoSchedule"
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonHeldByPlacement, held)
	p.AwaitEvent("RolloutComplete", "Normal", held, "done in")
	p.Kubectl("wait", "--for=condition=RolloutComplete", "daemonset/"+rolloutenv.Name, "--timeout=30s")
	if n, _ := nodesIn(t, c, p.Namespace, rollout.HeldByPlacement); n != 1 {
		t.Errorf("the metric has %v nodes, want 1", n)
	}
	if slices.Contains(p.Deleted(), "n4") {
		t.Error("the pod was deleted, though no other would follow")
	}
	taint("")
	p.Await("app:2", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	p.AwaitEvent("RolloutComplete", "Normal", "10 of 10 nodes updated")
}

func TestWrongValuesAreAnsweredAndNothingIsDeleted(t *testing.T) {
	for _, value := range []string{"-1", "abc", "101%"} {
		t.Run(value, func(t *testing.T) {
			p := newPlay(t, 1, map[string]string{rollout.MaxUnavailableAnnotation: value})
			c := s.StartController(t, options(), p.Guard)
			p.AwaitCondition(rollout.InvalidCondition, corev1.ConditionTrue, rollout.ReasonInvalid, fmt.Sprintf("%q", value))
			p.AwaitEvent("InvalidUpdateStrategy", "Warning", rollout.MaxUnavailableAnnotation, fmt.Sprintf("%q", value), "a percentage such as 10%")
			p.SetImage("app:2")
			p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonInvalid)
			rest(3 * settle)
			before := reconciles(t, c)
			rest(time.Second)
			if after := reconciles(t, c); after > before+2 {
				t.Errorf("%v reconciles in a second", after-before)
			}
			if got := p.Deleted(); len(got) > 0 {
				t.Errorf("pods were deleted on %v", got)
			}
			for message, count := range p.Events("InvalidUpdateStrategy") {
				if count != 1 {
					t.Errorf("told %d times: %s", count, message)
				}
			}
			p.Annotate(rollout.MaxUnavailableAnnotation, "1")
			p.Await("app:2", nodes)
			p.AwaitCondition(rollout.InvalidCondition, corev1.ConditionFalse, rollout.ReasonAccepted)
		})
	}
}

func TestASecondTemplateIsNotBlockedByTheFirstOnesBrokenPods(t *testing.T) {
	p := newPlay(t, 2, nil)
	p.start()
	p.broken("app:2")
	p.SetImage("app:2")
	first := p.firsts(2)
	p.stands(rollout.ReasonUpdating, first...)
	p.SetImage("app:3")
	p.Await("app:3", nodes)
}

func TestTheMaximumHoldsThoughTheControllerIsKilledAgainAndAgain(t *testing.T) {
	p := newPlay(t, 2, nil)
	p.start().Kill()
	p.SetImage("app:2")
	for i := range 12 {
		c := s.StartController(t, options(), p.Guard)
		n := len(p.Deleted())
		poll.Eventually(t, "it has deleted something, or is done", func() bool {
			return len(p.Deleted()) > n || len(p.With("app:2")) == nodes
		})
		rest(time.Duration(i*7) * time.Millisecond)
		c.Kill()
	}
	s.StartController(t, options(), p.Guard)
	p.Await("app:2", nodes)
	if got := p.Deleted(); len(got) > nodes+12 {
		t.Errorf("%d deletions for %d pods", len(got), nodes)
	}
}

func TestNoPodIsDeletedWhileItsNodeFlaps(t *testing.T) {
	p := newPlay(t, 3, nil)
	o := options()
	o.Timing.NodeSettle = 2 * time.Second
	s.StartController(t, o, p.Guard)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	p.cutOff("n2")
	p.SetImage("app:2")
	for range 8 {
		p.connect("n2")
		rest(700 * time.Millisecond)
		p.cutOff("n2")
		rest(300 * time.Millisecond)
	}
	if slices.Contains(p.Deleted(), "n2") {
		t.Error("its pod was deleted while it flapped")
	}
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonWaiting, "9 of 10")
	p.connect("n2")
	p.Await("app:2", nodes)
}
