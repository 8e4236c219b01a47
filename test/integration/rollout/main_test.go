// Package rollout_test rolls a DaemonSet out against a real apiserver, controller manager and scheduler, with nodes
// that the test plays, and a controller that has the rights of deploy/: what needs an apiserver that is not
// played. Which pods a rollout deletes, and when, is tested in controller/rollout, what the controller does with
// that in controller, and all of it at random in test/chaos/rollout.
package rollout_test

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	nodes = 10 // n1 to n10
	// settle stands for rollout.NodeSettle, so that nobody waits for 10 s.
	settle = 300 * time.Millisecond
)

var s *rolloutenv.Env

func TestMain(m *testing.M) {
	testmain.AtOnce(10) // they wait
	os.Exit(rolloutenv.Main(m, "../../..", nodes, func(started *rolloutenv.Env) { s = started }))
}

// play is a DaemonSet that is rolled out, of which one node at a time may be unavailable, and a guard of that.
type play struct {
	*rolloutenv.DaemonSet
	*rolloutenv.Guard
}

// newPlay starts a controller, and returns when it may touch the nodes that it has just seen.
func newPlay(t *testing.T, annotations map[string]string) (play, *rolloutenv.Controller) {
	t.Helper()
	annotations[api.MaxUnavailableAnnotation] = "1"
	d := s.NewDaemonSet(t, annotations)
	p := play{d, s.NewGuard(d.Namespace, func(int) int { return 1 })}
	t.Cleanup(func() {
		for _, v := range p.Violations() {
			t.Error(v)
		}
	})
	c := s.StartController(t, controller.Options{Timing: rollout.Timing{NodeSettle: settle}}, p.Guard)
	p.AwaitCondition(api.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	rest(2 * settle)
	return p, c
}

// rest is for where something must not happen. What must is waited for.
func rest(d time.Duration) { <-time.After(d) }

// last returns the node that gets its turn last.
func (p play) last() string {
	pods := p.Pods()
	turned := func(node string) time.Time {
		return api.Condition(pods[node], corev1.PodReady).LastTransitionTime.Time
	}
	return slices.MaxFunc(slices.Collect(maps.Keys(pods)), func(a, b string) int {
		return cmp.Or(turned(a).Compare(turned(b)), cmp.Compare(a, b))
	})
}

// The controller learns that a pod does not serve when it serves again already. To delete it all the same would be
// one too many: the apiserver refuses that, by the resourceVersion that the request names.
func TestAPodThatServesAgainByNowIsNotTakenForIdle(t *testing.T) {
	const late = 2 * time.Second
	p, c := newPlay(t, map[string]string{api.PausedAnnotation: "true"})
	p.SetImage("app:2")
	p.AwaitCondition(api.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused)
	rest(settle) // and the last watches have arrived
	last := p.last()
	c.Lag(late)
	p.Fault(last)
	s.Fleet.Fail(p.Pods()[last])
	t.Cleanup(s.Fleet.Heal)
	ready := func(n int) func() bool { return func() bool { return int(p.Get().Status.NumberReady) == n } }
	poll.Eventually(t, "the pod on "+last+" is not Ready", ready(nodes-1))
	p.Annotate(api.PausedAnnotation, nil)
	rest(late / 2)
	s.Fleet.Heal()
	poll.Eventually(t, "the pod serves again", ready(nodes))
	poll.Eventually(t, "the controller goes on", func() bool { return len(p.Deleted()) > 0 })
	if p.Deleted()[0] == last {
		t.Errorf("the pod on %s went first, which was taken for one that serves nobody", last)
	}
	if c.Refused() == 0 {
		t.Error("nothing was refused: the controller never believed it, and this test shows nothing")
	}
	c.Lag(0)
	p.Await("app:2", nodes)
	p.Kubectl("wait", "--for=condition=RolloutComplete", "daemonset/"+rolloutenv.Name, "--timeout=5m")
	p.AwaitEvent("RolloutComplete", "Normal", "10 of 10 nodes updated", "done in")
}

// Each step has to wait for a pod to go, to come and to be Ready, which here takes
// a fraction of a second, and for nothing else.
func TestMeasuredTheNextStepFollowsAtOnce(t *testing.T) {
	p, _ := newPlay(t, map[string]string{})
	begin := time.Now()
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	took := time.Since(begin)
	t.Logf("%d nodes, one at a time: %v", nodes, took)
	if limit := nodes * time.Second; took > limit {
		t.Errorf("it took %v, want less than %v", took, limit)
	}
}
