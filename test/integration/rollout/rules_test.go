package rollout_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

// turned is when a pod became Ready.
func turned(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// inOrder are the nodes with a pod, in the order in which they get their turn.
func (p *play) inOrder() []string {
	pods := p.Pods()
	var out []string
	for node := range pods {
		out = append(out, node)
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Or(turned(pods[a]).Compare(turned(pods[b])), cmp.Compare(a, b))
	})
	return out
}

// firsts are the first n nodes to get their turn.
func (p *play) firsts(n int) []string { return p.inOrder()[:n] }

// first is the one of these that gets its turn first.
func (p *play) first(of ...string) string {
	for _, node := range p.inOrder() {
		if slices.Contains(of, node) {
			return node
		}
	}
	return ""
}

func reconciles(t *testing.T, c *rolloutenv.Controller) float64 {
	t.Helper()
	families, err := c.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == "edgehub_controller_reconciles_total" {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// nodesIn is the metric.
func nodesIn(t *testing.T, c *rolloutenv.Controller, namespace string, state rollout.State) (float64, bool) {
	t.Helper()
	families, err := c.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "edgehub_controller_rollout_nodes" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["namespace"] == namespace && labels["state"] == string(state) {
				return m.GetGauge().GetValue(), true
			}
		}
	}
	return 0, false
}

// gauge is a metric of a DaemonSet, -1 where there is none.
func gauge(t *testing.T, c *rolloutenv.Controller, name, namespace string) float64 {
	t.Helper()
	families, err := c.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == "namespace" && l.GetValue() == namespace {
					return m.GetGauge().GetValue()
				}
			}
		}
	}
	return -1
}

func TestTheOldestGoesFirst(t *testing.T) {
	p := newPlay(t, 1, nil)
	p.start()
	want := p.inOrder()
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	if got := p.Deleted(); !slices.Equal(got, want) {
		t.Errorf("deleted on %v, want %v", got, want)
	}
}

// The controller learns that a pod does not serve when it serves again already. To
// delete it all the same would be one too many.
func TestAPodThatServesAgainByNowIsNotTakenForIdle(t *testing.T) {
	const late = 2 * time.Second
	p := newPlay(t, 1, map[string]string{rollout.PausedAnnotation: "true"})
	c := p.start()
	p.SetImage("app:2")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused)
	rest(settle) // and the last watches have arrived
	last := p.inOrder()[nodes-1]
	c.Lag(late)
	p.fail(last)
	p.Annotate(rollout.PausedAnnotation, nil)
	rest(late / 2)
	s.Fleet.Heal()
	poll.Eventually(t, "the pod serves again", func() bool { return int(p.Get().Status.NumberReady) == nodes })
	poll.Eventually(t, "the controller goes on", func() bool { return len(p.Deleted()) > 0 })
	if p.Deleted()[0] == last {
		t.Errorf("the pod on %s went first, which was taken for one that serves nobody", last)
	}
	if c.Refused() == 0 {
		t.Error("nothing was refused: the controller never believed it, and this test shows nothing")
	}
	c.Lag(0)
	p.Await("app:2", nodes)
}

func TestPauseAndResume(t *testing.T) {
	p := newPlay(t, 1, nil)
	c := p.start()
	p.SetImage("app:2")
	p.Await("app:2", 3)
	p.Annotate(rollout.PausedAnnotation, "true")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused, rollout.PausedAnnotation)
	n := len(p.Deleted())
	p.Await("app:2", n)
	rest(3 * settle)
	if got := len(p.Deleted()); got != n {
		t.Errorf("%d pods were deleted while paused", got-n)
	}
	if got, _ := nodesIn(t, c, p.Namespace, rollout.HeldByPause); int(got) != nodes-n {
		t.Errorf("the metric says that %v nodes are held, want %d", got, nodes-n)
	}
	p.AwaitEvent("RolloutHeld", "Normal", rollout.PausedAnnotation)
	p.Annotate(rollout.PausedAnnotation, nil)
	p.Await("app:2", nodes)
	p.AwaitEvent("RolloutResumed", "Normal")
}

func TestAPartitionKeepsThatManyPods(t *testing.T) {
	p := newPlay(t, 5, map[string]string{rollout.PartitionAnnotation: "7"})
	p.start()
	first := p.firsts(3)
	p.SetImage("app:2")
	p.stands(rollout.ReasonHeldByPartition, first...)
	p.Annotate(rollout.PartitionAnnotation, "40%")
	p.Await("app:2", 6)
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonHeldByPartition, "6 of 10 nodes updated", "4 held")
	p.Annotate(rollout.PartitionAnnotation, "0")
	p.Await("app:2", nodes)
}

func TestACanaryOnNodesWithALabel(t *testing.T) {
	p := newPlay(t, 5, map[string]string{rollout.NodeSelectorAnnotation: "name in (n2,n9)"})
	p.start()
	p.SetImage("app:2")
	p.stands(rollout.ReasonHeldBySelector, "n2", "n9")
	p.Annotate(rollout.NodeSelectorAnnotation, nil)
	p.Await("app:2", nodes)
}

func TestADaemonForSomeNodesCountsThoseOnly(t *testing.T) {
	p := newPlay(t, 1, nil, func(ds *appsv1.DaemonSet) {
		ds.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1", "n2", "n3"}}},
			}}},
		}}
	})
	p.Only("n1", "n2", "n3")
	p.start()
	p.SetImage("app:2")
	p.Await("app:2", 3)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete, "3 of 3")
}

// Each pod is available two seconds after it was seen to be Ready, though its node
// believes that this is years ago, or to come.
func TestMinReadySecondsWithWrongClocks(t *testing.T) {
	s.Fleet.Skew("n1", -20*365*24*time.Hour)
	s.Fleet.Skew("n2", 20*365*24*time.Hour)
	t.Cleanup(func() {
		s.Fleet.Skew("n1", 0)
		s.Fleet.Skew("n2", 0)
	})
	p := newPlay(t, 1, map[string]string{rollout.NodeSelectorAnnotation: "name in (n1,n2,n3)"},
		func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 2 })
	p.start()
	begin := time.Now()
	p.SetImage("app:2")
	p.Await("app:2", 3)
	if took := time.Since(begin); took < 4*time.Second {
		t.Errorf("three pods, each after the one before was Ready for 2 s, took %v", took)
	}
	if got, want := p.Deleted(), []string{"n1", "n3", "n2"}; !slices.Equal(got, want) {
		t.Errorf("deleted on %v, want %v: the order is by what their nodes say", got, want)
	}
}

func TestAfterARestartPodsHaveToBeSeenReadyAgain(t *testing.T) {
	p := newPlay(t, 1, nil, func(ds *appsv1.DaemonSet) { ds.Spec.MinReadySeconds = 3 })
	p.start().Kill()
	p.SetImage("app:2")
	poll.Eventually(t, "Kubernetes has seen it", func() bool { return p.Get().Status.ObservedGeneration == p.Get().Generation })
	begin := time.Now()
	s.StartController(t, options(), p.Guard)
	poll.Eventually(t, "the first pod is deleted", func() bool { return len(p.Deleted()) == 1 })
	if took := time.Since(begin); took < 3*time.Second {
		t.Errorf("the first pod was deleted after %v: nobody had seen the others be Ready for 3 s", took)
	}
}

func TestRollbackMidway(t *testing.T) {
	p := newPlay(t, 1, nil)
	p.start()
	before := p.Pods()
	p.broken("app:2")
	p.SetImage("app:2")
	first := p.firsts(1)
	p.stands(rollout.ReasonUpdating, first...)
	p.Kubectl("rollout", "undo", "daemonset/"+rolloutenv.Name)
	p.Await("app:1", nodes)
	for node, pod := range p.Pods() {
		if !slices.Contains(first, node) && before[node].UID != pod.UID {
			t.Errorf("the pod on %s was at the target, and was replaced", node)
		}
	}
}

func TestRollbackAfterTheEnd(t *testing.T) {
	p := newPlay(t, 5, nil)
	p.start()
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	p.Kubectl("rollout", "undo", "daemonset/"+rolloutenv.Name)
	p.Await("app:1", nodes)
	if out := p.Kubectl("rollout", "history", "daemonset/"+rolloutenv.Name); !strings.Contains(out, "3") {
		t.Errorf("history: %s", out)
	}
}

func TestTheBreakerHaltsAndTheAdminGoesOn(t *testing.T) {
	p := newPlay(t, 2, nil)
	c := p.start()
	lost := p.halt(2)
	hash := p.Pods()[lost[0]].Labels[appsv1.ControllerRevisionHashLabelKey]
	p.AwaitCondition(rollout.HaltedCondition, corev1.ConditionTrue, rollout.ReasonHalted, "2 of the 2 nodes", lost[0], lost[1])
	p.AwaitEvent("RolloutHalted", "Warning", lost[0], lost[1], rollout.ContinueAnnotation+" is set to "+hash)
	p.stands(rollout.ReasonHalted, lost...)

	// Another process knows.
	c.Kill()
	s.StartController(t, options(), p.Guard)
	p.stands(rollout.ReasonHalted, lost...)
	s.Fleet.Mend("app:2")
	p.Annotate(rollout.ContinueAnnotation, hash)
	p.Await("app:2", nodes-2)
	p.AwaitEvent("RolloutResumed", "Normal")
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete) // the lost nodes have the revision, too
	p.AwaitCondition(rollout.HaltedCondition, corev1.ConditionFalse, rollout.ReasonNotHalted, lost[0], lost[1])
}

func TestTheBreakerClosesWhenTheLostNodesAreBack(t *testing.T) {
	p := newPlay(t, 2, nil)
	p.start()
	lost := p.halt(2)
	p.stands(rollout.ReasonHalted, lost...)
	s.Fleet.Mend("app:2")
	p.connect(lost[0])
	p.stands(rollout.ReasonHalted, lost...)
	p.connect(lost[1])
	p.Await("app:2", nodes)
	p.AwaitCondition(rollout.HaltedCondition, corev1.ConditionFalse, rollout.ReasonNotHalted)
}

func TestTheNextTemplateClosesTheBreaker(t *testing.T) {
	p := newPlay(t, 2, nil)
	p.start()
	lost := p.halt(2)
	p.stands(rollout.ReasonHalted, lost...)
	p.SetImage("app:3")
	p.Await("app:3", nodes-2)
	p.connect(lost...)
	p.Await("app:3", nodes)
}

// halt makes the first n nodes that get app:2 go away with it, and returns them.
func (p *play) halt(n int) []string {
	p.t.Helper()
	lost := p.firsts(n)
	p.broken("app:2")
	p.SetImage("app:2")
	for _, node := range lost {
		poll.Eventually(p.t, node+" has its new pod", func() bool {
			pod := p.Pods()[node]
			return pod != nil && pod.Spec.Containers[0].Image == "app:2"
		})
	}
	p.stands(rollout.ReasonUpdating, lost...)
	// Paused, since they do not go at the very same moment.
	p.Annotate(rollout.PausedAnnotation, "true")
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonPaused)
	p.cutOff(lost...)
	p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionFalse, rollout.ReasonHalted)
	p.Annotate(rollout.PausedAnnotation, nil)
	return lost
}

func TestSwitchingToOTAAndBackAndAway(t *testing.T) {
	p := newPlay(t, nodes, nil)
	c := p.start()
	const strategy = "apps.openyurt.io/update-strategy"
	p.Annotate(strategy, "OTA")
	gone := func(types ...appsv1.DaemonSetConditionType) func() bool {
		return func() bool {
			return !slices.ContainsFunc(types, func(t appsv1.DaemonSetConditionType) bool { return p.Condition(t).Type != "" })
		}
	}
	poll.Eventually(t, "the other conditions are withdrawn", gone(rollout.ProgressingCondition, rollout.HaltedCondition))
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	if _, ok := nodesIn(t, c, p.Namespace, rollout.Updated); ok {
		t.Error("the metric is still there")
	}
	p.SetImage("app:2")
	marked := func(n int) func() bool {
		return func() bool {
			got := 0
			for _, pod := range p.Pods() {
				for _, c := range pod.Status.Conditions {
					if c.Type == "PodNeedUpgrade" && c.Status == corev1.ConditionTrue {
						got++
					}
				}
			}
			return got == n
		}
	}
	poll.Eventually(t, "the pods are marked", marked(nodes))
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionFalse, rollout.ReasonWaitingForOwners)
	if len(p.Deleted()) > 0 {
		t.Error("pods were deleted with OTA")
	}
	p.Annotate(strategy, "auto")
	p.Await("app:2", nodes)
	poll.Eventually(t, "no pod is marked", marked(0))
	p.Annotate(strategy, "nonsense")
	p.AwaitCondition(rollout.InvalidCondition, corev1.ConditionTrue, rollout.ReasonInvalid, "nonsense")
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionFalse, rollout.ReasonInvalid)

	// Nobody is there when it opts out.
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	p.Annotate(strategy, nil)
	s.StartController(t, options(), p.Guard)
	poll.Eventually(t, "nothing is said any more", gone(rollout.CompleteCondition, rollout.ProgressingCondition, rollout.HaltedCondition, rollout.InvalidCondition))
}

func TestWithoutOnDeleteKubernetesDoesIt(t *testing.T) {
	p := newPlay(t, 1, nil)
	p.start()
	p.Patch(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	p.AwaitCondition(rollout.InvalidCondition, corev1.ConditionTrue, rollout.ReasonInvalid, "RollingUpdate", "to OnDelete")
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	if len(p.Deleted()) > 0 {
		t.Error("the controller deleted pods")
	}
}

// At most three requests of ours for each pod, even with few of them.
func TestFewRequestsForEachPod(t *testing.T) {
	p := newPlay(t, 2, nil)
	c := p.start()
	before := c.Calls()
	p.SetImage("app:2")
	p.Await("app:2", nodes)
	p.AwaitEvent("RolloutComplete", "done in")
	sum := 0
	for what, n := range c.Calls() {
		if n -= before[what]; n > 0 && !strings.HasPrefix(what, "WATCH") {
			t.Logf("%d %s", n, what)
			sum += n
		}
	}
	if sum > 3*nodes {
		t.Errorf("%d requests for %d pods", sum, nodes)
	}
}

func TestAPodThatMayNotBeDeletedIsToldAndTriedAgain(t *testing.T) {
	p := newPlay(t, 1, nil)
	p.start()
	allow := p.forbid()
	p.SetImage("app:2") // a few pods may go before the apiserver knows of its new rule
	p.AwaitEvent("DeletingPodsFailed", "Warning", "not today", "it is tried again")
	allow()
	p.Await("app:2", nodes)
}

// forbid makes the apiserver refuse to delete the pods, for the controller alone.
func (p *play) forbid() (allow func()) {
	p.t.Helper()
	const name = "edgehub-test-not-today"
	policies := s.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := s.Admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	deletions := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{deletions}}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: "!request.userInfo.username.endsWith(':edgehub-controller')", Message: "not today",
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	binding.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}
	if _, err := policies.Create(p.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	if _, err := bindings.Create(p.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	allow = sync.OnceFunc(func() {
		for _, err := range []error{
			bindings.Delete(context.Background(), name, metav1.DeleteOptions{}),
			policies.Delete(context.Background(), name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				p.t.Error(err)
			}
		}
	})
	p.t.Cleanup(allow)
	return allow
}
