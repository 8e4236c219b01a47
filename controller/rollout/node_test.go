package rollout

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// bound is the affinity that the DaemonSet controller gives a pod for a node, in terms
// of which the first come from the pod template.
func bound(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

func named(operator corev1.NodeSelectorOperator, nodes ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: operator, Values: nodes},
	}}
}

func TestNodeOf(t *testing.T) {
	in, labels := corev1.NodeSelectorOpIn, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"a label"}},
	}}
	for name, tt := range map[string]struct {
		spec corev1.PodSpec
		want string
	}{
		"a pod that is scheduled":                   {corev1.PodSpec{NodeName: "n1"}, "n1"},
		"the scheduler's word counts first":         {corev1.PodSpec{NodeName: "n1", Affinity: bound(named(in, "n2"))}, "n1"},
		"a pod that is not":                         {corev1.PodSpec{Affinity: bound(named(in, "n2"))}, "n2"},
		"in a later term":                           {corev1.PodSpec{Affinity: bound(labels, named(in, "n2"))}, "n2"},
		"the first term that names one":             {corev1.PodSpec{Affinity: bound(named(in, "n2"), named(in, "n3"))}, "n2"},
		"two names are none":                        {corev1.PodSpec{Affinity: bound(named(in, "n2", "n3"))}, ""},
		"all nodes but one are none":                {corev1.PodSpec{Affinity: bound(named(corev1.NodeSelectorOpNotIn, "n2"))}, ""},
		"labels are none":                           {corev1.PodSpec{Affinity: bound(labels)}, ""},
		"no affinity at all":                        {corev1.PodSpec{}, ""},
		"an affinity to other pods":                 {corev1.PodSpec{Affinity: &corev1.Affinity{}}, ""},
		"an affinity to nodes that is only a wish":  {corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}}, ""},
		"a required affinity without a single term": {corev1.PodSpec{Affinity: bound()}, ""},
	} {
		if got := NodeOf(&corev1.Pod{Spec: tt.spec}); got != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// unschedule makes a node's pod one that the scheduler finds no room for.
func (w *world) unschedule(node string) *corev1.Pod {
	w.t.Helper()
	pod := w.on(node).DeepCopy()
	pod.Spec = corev1.PodSpec{Affinity: bound(named(corev1.NodeSelectorOpIn, node))}
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
	}}
	w.pods[pod.UID] = pod
	return pod
}

func TestPodsThatAreNotScheduledAreReplaced(t *testing.T) {
	w := newWorld(t, 5)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "1"
	w.unschedule("n2")
	w.unschedule("n4")
	p := w.expect("n2", "n4")
	for _, d := range p.Delete {
		if want := "it serves nobody: pod is not scheduled: Unschedulable"; !d.NotReady || d.Reason != want {
			t.Errorf("pod %s: idle %t, because %q, want %q", d.Pod.Name, d.NotReady, d.Reason, want)
		}
	}
}

func TestANewPodThatIsNotScheduledCounts(t *testing.T) {
	w := newWorld(t, 3)
	w.ds.Annotations[api.MaxUnavailableAnnotation] = "1"
	w.upgrade("n3", false)
	w.unschedule("n3")
	p := w.expect()
	if got := state(t, &p, "n3"); got.State != Unavailable || got.Reason != "pod is not scheduled: Unschedulable" {
		t.Errorf("n3 is %v", got)
	}
	w.target = "newer"
	w.expect("n3")
}

func TestAnUnscheduledPodOnANotReadyNodeIsNoUpdate(t *testing.T) {
	w := newWorld(t, 3)
	w.upgrade("n3", false)
	w.unschedule("n3")
	w.turn("n3", never)
	p := w.plan()
	if got := state(t, &p, "n3"); got.State != WaitingNotReady || got.Reason != "node is not Ready, pod is not scheduled: Unschedulable" {
		t.Errorf("n3 is %v", got)
	}
}

// The pods never reached the nodes, so they did not take them down.
func TestTheBreakerDoesNotCountPodsThatAreNotScheduled(t *testing.T) {
	w := newWorld(t, 5)
	for _, n := range []string{"n1", "n2"} {
		w.upgrade(n, false)
		w.unschedule(n)
	}
	w.look()
	w.pass(time.Minute)
	w.turn("n1", never)
	w.turn("n2", never)
	p := w.plan()
	if p.Breaker.Open || len(p.Breaker.Lost) > 0 {
		t.Errorf("the breaker is %+v", p.Breaker)
	}
}

func TestAPodThatIsNotScheduledAsksNoNodeToPull(t *testing.T) {
	w := newWorld(t, 3)
	w.ds.Annotations[api.PrepullAnnotation] = "true"
	w.turn("n2", never)
	pod := w.unschedule("n2")
	p := w.plan()
	if _, told := p.Pulls[pod.UID]; told || len(p.Pulls) != 2 {
		t.Errorf("told are %v, want the pods on n1 and n3", p.Pulls)
	}
}
