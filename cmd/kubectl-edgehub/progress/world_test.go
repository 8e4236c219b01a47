package progress

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	oldRevision = "5d8f"
	newRevision = "7c9b"
)

var start = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

// world is a DaemonSet web with a revision to roll out, as a test describes it.
type world struct {
	Objects
	daemonSet *appsv1.DaemonSet // Objects.Workload
}

func newWorld(strategy string, annotations map[string]string) *world {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "ds-uid", Generation: 2,
		Annotations: map[string]string{daemonset.StrategyAnnotation: strategy},
	}}
	for key, value := range annotations {
		ds.Annotations[key] = value
	}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Status.ObservedGeneration = 2
	w := &world{Objects: Objects{Workload: ds}, daemonSet: ds}
	for i, hash := range []string{oldRevision, newRevision} {
		r := &appsv1.ControllerRevision{Revision: int64(i + 1)}
		r.Name, r.OwnerReferences = "web-"+hash, owned()
		r.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
		w.Revisions = append(w.Revisions, r)
	}
	return w
}

func owned() []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", UID: "ds-uid", Controller: &yes}}
}

// node adds one that has been Ready, or not, for an hour, and returns it.
func (w *world) node(name string, ready corev1.ConditionStatus) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name), Labels: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}
	w.Nodes = append(w.Nodes, n)
	return n
}

// pod adds one to a node and returns it.
func (w *world) pod(node, revision string, ready corev1.ConditionStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web-" + node, UID: types.UID("pod-" + node), OwnerReferences: owned(),
		Labels:            map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
		CreationTimestamp: metav1.NewTime(start.Add(-2 * time.Hour)),
	}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "web"}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour))}}
	w.Pods = append(w.Pods, p)
	return p
}

// fleet adds n Ready nodes with a Ready pod each.
func (w *world) fleet(prefix string, n int, revision string) *world {
	for i := range n {
		name := fmt.Sprintf("%s%d", prefix, i+1)
		w.node(name, corev1.ConditionTrue)
		w.pod(name, revision, corev1.ConditionTrue)
	}
	return w
}

// broken makes pod one whose image cannot be pulled.
func broken(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodPending
	pod.Status.Conditions[0].Status = corev1.ConditionFalse
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
}

// said adds a condition in the controller's words.
func (w *world) said(t appsv1.DaemonSetConditionType, status corev1.ConditionStatus, words string) {
	w.daemonSet.Status.Conditions = append(w.daemonSet.Status.Conditions, appsv1.DaemonSetCondition{
		Type: t, Status: status, Message: "controllerrevision " + newRevision + ": " + words})
}

func (w *world) evaluate(t *testing.T) *Report {
	t.Helper()
	r, err := Evaluate(w.Objects, start)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const advanced = "AdvancedRollingUpdate"

// mixed has nodes in every state that a rollout has by itself.
func mixed() *world {
	w := newWorld(advanced, map[string]string{rollout.MaxUnavailableAnnotation: "20%"})
	w.fleet("a", 5, newRevision).fleet("b", 2, oldRevision)
	w.node("c1", corev1.ConditionUnknown)
	w.pod("c1", oldRevision, corev1.ConditionFalse)
	w.node("c2", corev1.ConditionUnknown)
	w.pod("c2", oldRevision, corev1.ConditionFalse)
	w.node("d1", corev1.ConditionTrue)
	broken(w.pod("d1", newRevision, corev1.ConditionFalse))
	w.node("d2", corev1.ConditionTrue)
	broken(w.pod("d2", newRevision, corev1.ConditionFalse))
	return w
}
