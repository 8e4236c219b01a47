// Package rollout_test rolls DaemonSets out against a real apiserver, a real
// controller manager and a real scheduler, with nodes that the test plays: the
// cases that go wrong elsewhere, and each rule. The controller has the rights of
// deploy/, and each of its deletions is checked at the moment it is made.
//
// The tests share a cluster and do not run in parallel, since each controller sees
// every DaemonSet.
package rollout_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

// nodes are n1 to n10.
const nodes = 10

// moduleRoot is the product's, seen from this folder.
const moduleRoot = "../../.."

// settle stands for rollout.NodeSettle, so that nobody waits for 10 s.
const settle = 300 * time.Millisecond

var s *rolloutenv.Env

func TestMain(m *testing.M) {
	os.Exit(rolloutenv.Main(m, moduleRoot, nodes, func(started *rolloutenv.Env) { s = started }))
}

// options are those of every controller here.
func options() controller.Options {
	return controller.Options{Timing: rollout.Timing{NodeSettle: settle}}
}

// play is a DaemonSet that is rolled out, and a guard that allows it to make at
// most so many of the Ready nodes unavailable.
type play struct {
	*rolloutenv.DaemonSet
	*rolloutenv.Guard
	t *testing.T
}

func newPlay(t *testing.T, most int, annotations map[string]string, change ...func(*appsv1.DaemonSet)) *play {
	t.Helper()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if _, ok := annotations[rollout.MaxUnavailableAnnotation]; !ok {
		annotations[rollout.MaxUnavailableAnnotation] = fmt.Sprint(most)
	}
	d := s.NewDaemonSet(t, annotations, change...)
	p := &play{DaemonSet: d, t: t, Guard: s.NewGuard(d.Namespace, func(int) int { return most })}
	t.Cleanup(p.check)
	return p
}

// check fails the test for deletions that should not have been.
func (p *play) check() {
	for _, v := range p.Violations() {
		p.t.Error(v)
	}
}

// start runs a controller and waits until it has seen the DaemonSet.
func (p *play) start() *rolloutenv.Controller {
	p.t.Helper()
	c := s.StartController(p.t, options(), p.Guard)
	p.AwaitCondition(rollout.CompleteCondition, "True", rollout.ReasonComplete)
	p.calm()
	return c
}

// calm waits until nodes that have just been seen may be touched.
func (p *play) calm() { rest(2 * settle) }

// rest is for where something must not happen. What must is waited for.
func rest(d time.Duration) { <-time.After(d) }

// fail makes the pods on these nodes unready, and waits until they are.
func (p *play) fail(nodes ...string) {
	p.t.Helper()
	for _, n := range nodes {
		p.Fault(n)
		s.Fleet.Fail(p.Pods()[n])
	}
	p.t.Cleanup(s.Fleet.Heal)
	poll.Eventually(p.t, fmt.Sprintf("the pods on %v are not Ready", nodes), func() bool {
		return int(p.Get().Status.NumberReady) == int(p.Get().Status.DesiredNumberScheduled)-len(nodes)
	})
}

// broken makes an image one that cannot be pulled.
func (p *play) broken(image string) {
	s.Fleet.Break(image)
	p.t.Cleanup(func() { s.Fleet.Mend(image) })
}

// stands waits until the controller reports it, and checks that nothing but these
// nodes' pods is deleted, in any order.
func (p *play) stands(reason string, deleted ...string) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("deleted %v", p.Deleted())
		}
	}()
	poll.Eventually(p.t, fmt.Sprintf("the pods on %v are deleted", deleted), func() bool { return len(p.Deleted()) >= len(deleted) })
	poll.Eventually(p.t, "the reason is "+reason, func() bool { return p.Condition(rollout.ProgressingCondition).Reason == reason })
	rest(3 * settle)
	got := p.Deleted()
	slices.Sort(got)
	want := slices.Sorted(slices.Values(deleted))
	if !slices.Equal(got, want) {
		p.t.Fatalf("the pods on %v were deleted, want %v", got, want)
	}
}

// names are n1 to nN.
func names(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("n%d", i))
	}
	return out
}

// cutOff takes nodes away until connect or the end of the test.
func (p *play) cutOff(nodes ...string) {
	p.t.Helper()
	for _, n := range nodes {
		p.Fault(n)
		if err := s.Fleet.CutOff(p.t.Context(), n); err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() {
			if err := s.Fleet.Connect(context.Background(), n); err != nil {
				p.t.Error(err)
			}
		})
	}
}

// connect brings nodes back.
func (p *play) connect(nodes ...string) {
	p.t.Helper()
	for _, n := range nodes {
		p.Fault(n)
		if err := s.Fleet.Connect(p.t.Context(), n); err != nil {
			p.t.Fatal(err)
		}
	}
}
