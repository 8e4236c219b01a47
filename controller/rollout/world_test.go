package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	oldRevision = "old"
	target      = "new"
)

var start = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

// world is a cluster as a test describes it, with a DaemonSet that is rolled out.
type world struct {
	t        *testing.T
	now      time.Time
	ds       *appsv1.DaemonSet
	target   string
	nodes    map[string]*corev1.Node
	pods     map[types.UID]*corev1.Pod
	deleted  map[types.UID]bool
	observed *Observations
	halted   string
	last     int
	refused  map[types.UID]*Refusal
	// rolledBack are the nodes whose owners went back.
	rolledBack []string
	// unsettled are the nodes that have yet to report what became of an upgrade in place.
	unsettled []string
	// restarting are the nodes whose pod counts as unavailable until then.
	restarting map[string]time.Time
	inARow     int
}

// newWorld has n Ready nodes, n1 to nN, each with an old pod that is Ready.
// Everything has been seen so for an hour.
func newWorld(t *testing.T, n int) *world {
	w := &world{
		t: t, now: start, ds: &appsv1.DaemonSet{}, target: target,
		nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{}, deleted: map[types.UID]bool{},
		observed: NewObservations(),
	}
	w.ds.Annotations = map[string]string{}
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		w.addNode(name, corev1.ConditionTrue)
		w.addPod(name, oldRevision, true)
		w.now = w.now.Add(time.Minute) // each pod became Ready at another time
	}
	w.target = oldRevision
	w.plan()
	w.target = target
	w.pass(time.Hour)
	return w
}

func (w *world) pass(d time.Duration) { w.now = w.now.Add(d) }

func (w *world) addNode(name string, ready corev1.ConditionStatus) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"name": name}}}
	w.nodes[name] = node
	w.turn(name, ready)
	return node
}

// turn sets a node's Ready condition.
func (w *world) turn(name string, ready corev1.ConditionStatus) {
	node := w.nodes[name].DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(w.now),
	}}
	w.nodes[name] = node
}

func (w *world) addPod(node, revision string, ready bool) *corev1.Pod {
	w.last++
	pod := &corev1.Pod{}
	pod.Name, pod.UID = fmt.Sprintf("pod%d", w.last), types.UID(fmt.Sprintf("uid%d", w.last))
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}
	pod.CreationTimestamp = metav1.NewTime(w.now)
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodPending
	w.pods[pod.UID] = pod
	if ready {
		w.ready(pod.UID, true)
	}
	return w.pods[pod.UID]
}

// ready sets a pod's Ready condition; one that is Ready runs.
func (w *world) ready(uid types.UID, is bool) {
	pod := w.pods[uid].DeepCopy()
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(w.now)}
	if is {
		c.Status, pod.Status.Phase = corev1.ConditionTrue, corev1.PodRunning
	}
	pod.Status.Conditions = []corev1.PodCondition{c}
	w.pods[uid] = pod
}

// on returns the only pod on a node.
func (w *world) on(node string) *corev1.Pod {
	w.t.Helper()
	var out *corev1.Pod
	for _, pod := range w.pods {
		if NodeOf(pod) == node && pod.DeletionTimestamp.IsZero() {
			if out != nil {
				w.t.Fatalf("node %s has more than one pod", node)
			}
			out = pod
		}
	}
	if out == nil {
		w.t.Fatalf("node %s has no pod", node)
	}
	return out
}

func (w *world) remove(node string) { delete(w.pods, w.on(node).UID) }

// upgrade replaces a node's pod by one of the target.
func (w *world) upgrade(node string, ready bool) {
	w.remove(node)
	w.addPod(node, w.target, ready)
}

func (w *world) input() Input {
	w.t.Helper()
	o, err := ParseOptions(w.ds.Annotations)
	if err != nil {
		w.t.Fatal(err)
	}
	in := Input{
		DaemonSet: w.ds, Options: o, Revision: w.target, Halted: w.halted, Observations: w.observed, Now: w.now,
		Deleted: func(uid types.UID) bool { return w.deleted[uid] },
		Refused: func(uid types.UID) *Refusal { return w.refused[uid] }, RefusedInARow: w.inARow,
		RolledBack: func(pod *corev1.Pod) bool { return slices.Contains(w.rolledBack, NodeOf(pod)) },
		Restarting: func(pod *corev1.Pod) time.Time { return w.restarting[NodeOf(pod)] },
		Unsettled: func(pod *corev1.Pod) string {
			if slices.Contains(w.unsettled, NodeOf(pod)) {
				return "it is unsettled"
			}
			return ""
		},
	}
	for _, node := range w.nodes {
		in.Nodes = append(in.Nodes, node)
	}
	for _, pod := range w.pods {
		in.Pods = append(in.Pods, pod)
	}
	return in
}

// plan remembers the deletions as sent.
func (w *world) plan() Plan {
	w.t.Helper()
	p := NewPlan(w.input())
	for _, d := range p.Delete {
		w.deleted[d.Pod.UID] = true
	}
	return p
}

// look lets the plan see what is, and deletes nothing.
func (w *world) look() {
	w.t.Helper()
	in := w.input()
	in.Options.Paused = true
	NewPlan(in)
}

// expect makes a plan and compares the nodes whose pods it deletes, in order.
func (w *world) expect(nodes ...string) Plan {
	w.t.Helper()
	p := w.plan()
	if got := deletions(&p); !slices.Equal(got, nodes) {
		w.t.Fatalf("pods are deleted on %v, want %v; %s", got, nodes, p.Summary())
	}
	return p
}

func deletions(p *Plan) []string {
	var out []string
	for _, d := range p.Delete {
		out = append(out, NodeOf(d.Pod))
	}
	return out
}

// state returns a node's.
func state(t *testing.T, p *Plan, node string) NodeStatus {
	t.Helper()
	for _, n := range p.Nodes {
		if n.Name == node {
			return n
		}
	}
	t.Fatalf("node %s is not in the plan", node)
	return NodeStatus{}
}

// restart forgets what a process keeps in memory.
func (w *world) restart() {
	w.observed, w.deleted = NewObservations(), map[types.UID]bool{}
}
