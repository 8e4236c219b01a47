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

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	oldRevision = "5d8f"
	newRevision = "7c9b"
	advanced    = "AdvancedRollingUpdate"
)

var start = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

// world is a DaemonSet web, or StatefulSet db, with a revision to roll out, and what the controller says about it.
type world struct {
	workload workload.Object
	pods     []*corev1.Pod
	says     rollout.Report
}

func newWorld(strategy string, annotations map[string]string) *world {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "ds-uid", Generation: 2, Annotations: map[string]string{api.StrategyAnnotation: strategy},
	}}
	for key, value := range annotations {
		ds.Annotations[key] = value
	}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	return &world{workload: ds, says: rollout.Report{Reason: rollout.ReasonUpdating}}
}

// pod adds one that is Ready to a node, and returns it.
func (w *world) pod(name, node, revision string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
		CreationTimestamp: metav1.NewTime(start.Add(-2 * time.Hour)),
	}}
	p.Spec.NodeName = node
	p.Spec.Containers = []corev1.Container{{Name: "web"}}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	w.pods = append(w.pods, p)
	return p
}

// fleet adds n nodes with a pod each, of which the controller says this.
func (w *world) fleet(prefix string, n int, state rollout.State, reason string) *world {
	g := rollout.Group{State: state, Reason: reason, Count: n}
	for i := range n {
		node, revision := fmt.Sprintf("%s%d", prefix, i+1), oldRevision
		if state == rollout.Updated || reason == pullBackOff {
			revision = newRevision
		}
		if state != rollout.Updated {
			g.Nodes = append(g.Nodes, node)
		}
		broken := w.pod("web-"+node, node, revision)
		if reason == pullBackOff {
			broken.Status.Phase = corev1.PodPending
			broken.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "web", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
		}
	}
	w.says.Groups = append(w.says.Groups, g)
	return w
}

const pullBackOff = "container web: ImagePullBackOff"

// because sets the reason and the message.
func (w *world) because(reason, message string) *world {
	w.says.Reason, w.says.Message = reason, message
	return w
}

// condition adds a condition of the controller's.
func (w *world) condition(t appsv1.DaemonSetConditionType, message string) *world {
	ds := w.workload.(*appsv1.DaemonSet)
	ds.Status.Conditions = append(ds.Status.Conditions, appsv1.DaemonSetCondition{Type: t, Message: "controllerrevision " + newRevision + ": " + message})
	return w
}

// say writes the report to the workload.
func (w *world) say() *world {
	r := rollout.NewAwaitReport(w.workload)
	r.Revision, r.Reason, r.Message, r.Groups, r.Limits, r.Missing = newRevision, w.says.Reason, w.says.Message, w.says.Groups, w.says.Limits, w.says.Missing
	r.Counts = map[rollout.State]int{}
	for _, g := range r.Groups {
		r.Counts[g.State] += g.Count
	}
	w.workload.GetAnnotations()[api.ReportAnnotation] = r.Encode()
	return w
}

func (w *world) look(t *testing.T) *Report {
	t.Helper()
	r, err := Evaluate(w.workload, w.pods, start)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) evaluate(t *testing.T) *Report {
	t.Helper()
	return w.say().look(t)
}

// mixed has nodes in every state that a rollout has by itself.
func mixed() *world {
	w := newWorld(advanced, map[string]string{api.MaxUnavailableAnnotation: "20%"})
	w.fleet("a", 5, rollout.Updated, "").fleet("b", 2, rollout.Pending, "").fleet("c", 2, rollout.WaitingNotReady, "node is not Ready")
	w.fleet("d", 2, rollout.Unavailable, pullBackOff)
	w.says.Limits = &rollout.Limits{Ready: 9, Unavailable: 2, Max: 2}
	return w.because(rollout.ReasonUpdating, "5 of 11 nodes updated")
}

// database is a StatefulSet with a pod that is updated, one that waits for its owner, and one that is missing.
func database() *world {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "db", Generation: 2, Annotations: map[string]string{api.StrategyAnnotation: "OTA"},
	}}
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	w := &world{workload: set}
	w.pod("db-0", "a", newRevision)
	w.pod("db-1", "b", oldRevision)
	w.says.Groups = []rollout.Group{
		{State: rollout.Unavailable, Reason: "no pod", Count: 1, Nodes: []string{"db-2"}}, {State: rollout.Updated, Count: 1},
		{State: rollout.WaitingForOwner, Count: 1, Nodes: []string{"db-1"}},
	}
	return w.because(rollout.ReasonWaitingForOwners, "1 of 3 pods updated, 1 unavailable (db-2: no pod), 1 waiting for their owner")
}
