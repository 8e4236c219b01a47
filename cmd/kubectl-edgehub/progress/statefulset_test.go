package progress

import (
	"math"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Pods of a StatefulSet have the name of their ControllerRevision as its hash.
const (
	oldRevisionName = "db-" + oldRevision
	newRevisionName = "db-" + newRevision
)

// database is a StatefulSet db with OTA and three pods: db-0 is updated, db-1 waits for its
// owner, and db-2 is missing.
func database() *world {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "db", UID: "ds-uid", Generation: 2,
		Annotations: map[string]string{daemonset.StrategyAnnotation: "OTA"},
	}}
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	set.Spec.Replicas = new(int32(3))
	set.Status.ObservedGeneration, set.Status.UpdateRevision = 2, newRevisionName
	w := &world{Objects: Objects{Workload: set}}
	for _, name := range []string{oldRevisionName, newRevisionName} {
		r := &appsv1.ControllerRevision{}
		r.Name, r.OwnerReferences = name, owned()
		r.OwnerReferences[0].Kind = "StatefulSet"
		w.Revisions = append(w.Revisions, r)
	}
	for i, revision := range []string{newRevisionName, oldRevisionName} {
		node := string(rune('a' + i))
		w.node(node, corev1.ConditionTrue)
		p := w.pod(node, revision, corev1.ConditionTrue)
		p.Name = "db-" + string(rune('0'+i))
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: upgrade.NeedCondition, Message: upgrade.Message(newRevisionName),
		})
	}
	return w
}

func TestTextOfAStatefulSet(t *testing.T) {
	w := database()
	r := w.evaluate(t)
	want := strings.TrimPrefix(`
statefulset.apps/db in shop: OTA to revision db-7c9b
updated          1  of 3
unavailable      1  no pod (db-2)
for owners       1  db-1
held             0
waiting: the owner of a node upgrades its pod, by a POST to the node's own API; nothing is done from here
`, "\n")
	if got := r.text(0); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if want := "1 of 3 pods updated, 1 unavailable, 1 waiting for their owner"; r.Message != want {
		t.Errorf("got %q, want %q", r.Message, want)
	}
}

func TestWhereAPodOfAStatefulSetStands(t *testing.T) {
	tests := map[string]struct {
		change func(w *world)
		pod    int
		want   string // state and reason of the pod
		phase  Phase
	}{
		"an old pod on a lost node": {func(w *world) { w.Nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown }, 1,
			"waiting_for_owner: node is not Ready", Waiting},
		"a new pod on a lost node": {func(w *world) {
			w.Nodes[0].Status.Conditions[0].Status, w.Pods[0].Status.Conditions[0].Status = corev1.ConditionUnknown, corev1.ConditionFalse
		}, 0, "updated: ", Waiting},
		"an old pod that no node runs": {func(w *world) { w.Pods[1].Spec.NodeName = "" }, 1, "unavailable: pod is not scheduled", Waiting},
		"a pod that is being deleted":  {func(w *world) { w.Pods[1].DeletionTimestamp = &metav1.Time{Time: start} }, 1, "unavailable: pod is being deleted", Updating},
		"a new pod that is not Ready":  {func(w *world) { broken(w.Pods[0]) }, 0, "unavailable: pod is not Ready", Waiting},
		"a new pod that was not Ready for long": {func(w *world) {
			w.Workload.(*appsv1.StatefulSet).Spec.MinReadySeconds = 60
			w.Pods[0].Status.Conditions[0].LastTransitionTime.Time = start.Add(-time.Second)
		}, 0, "unavailable: Ready for less than minReadySeconds, 1m0s", Waiting},
		"ordinals from 1": {func(w *world) {
			w.Workload.(*appsv1.StatefulSet).Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
		}, 0, "waiting_for_owner: ", Waiting},
		"an old pod whose owner went back": {func(w *world) {
			mark(w.Pods[1], upgrade.RolledBackCondition, corev1.ConditionTrue, "")
			annotate(w.Pods[1], upgrade.RollbackAnnotation, upgrade.Rollback{Revision: oldRevisionName, From: newRevisionName}.Encode())
			w.Workload.(*appsv1.StatefulSet).Spec.Replicas = new(int32(2))
		}, 1, "rolled_back: ", Held},
		"billions of replicas": {func(w *world) {
			w.Workload.(*appsv1.StatefulSet).Spec.Replicas = new(int32(math.MaxInt32))
		}, maxMissing + 1, "unavailable: no pod", Waiting},
		"one replica": {func(w *world) { w.Workload.(*appsv1.StatefulSet).Spec.Replicas = nil }, 0, "updated: ", Complete},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := database()
			tt.change(w)
			r := w.evaluate(t)
			if n := r.Nodes[tt.pod]; string(n.State)+": "+n.Reason != tt.want || r.State != tt.phase {
				t.Errorf("got %s: %s, and %s; want %s, and %s", n.State, n.Reason, r.State, tt.want, tt.phase)
			}
		})
	}
}

func TestAStatefulSetThatKubernetesHasNotObserved(t *testing.T) {
	w := database()
	w.Workload.(*appsv1.StatefulSet).Generation++
	if r := w.evaluate(t); r.State != Updating || r.Revision != "" {
		t.Errorf("got %s to revision %q, want updating while its revision is not known", r.State, r.Revision)
	}
}

func TestAStatefulSetIsNotRolledOutByItsNodes(t *testing.T) {
	w := database()
	w.Workload.GetAnnotations()[daemonset.StrategyAnnotation] = advanced
	if r := w.evaluate(t); r.State != Invalid || !strings.Contains(r.Advice, "OTA") {
		t.Errorf("got %s: %s, want what to write instead", r.State, r.Advice)
	}
}
