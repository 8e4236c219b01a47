package rollout

import (
	"fmt"
	"math"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// database is a StatefulSet db with three pods: db-0 is updated, db-1 waits for its owner, and db-2 is missing.
func database() (*appsv1.StatefulSet, Input) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec.Replicas = new(int32(3))
	in := Input{Revision: target, Now: start, Observations: NewTrustingObservations()}
	long := metav1.NewTime(start.Add(-time.Hour))
	for i, revision := range []string{target, oldRevision} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: long}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("db-", i), UID: types.UID(fmt.Sprint(i))}}
		pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: revision}
		pod.Spec.NodeName = node.Name
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: long}}
		in.Nodes, in.Pods = append(in.Nodes, node), append(in.Pods, pod)
	}
	return set, in
}

func TestWhereThePodsOfAStatefulSetStand(t *testing.T) {
	const two = "1 of 3 pods updated, 1 unavailable (db-2: no pod), 1 waiting for their owner"
	tests := map[string]struct {
		change  func(*appsv1.StatefulSet, *Input)
		pod     int
		want    string // state and reason of the pod
		summary string // of all
		reason  string
	}{
		"nothing special": {func(*appsv1.StatefulSet, *Input) {}, 1, "waiting_for_owner: ", two, ReasonWaitingForOwners},
		"an old pod whose images are pulled": {func(_ *appsv1.StatefulSet, in *Input) {
			in.Pods[1].Status.Conditions = append(in.Pods[1].Status.Conditions, corev1.PodCondition{Type: api.ImageCondition, Message: api.Message(target)})
		}, 1, "waiting_for_owner: its images are being pulled", two, ReasonWaitingForOwners},
		"an old pod whose next one is refused": {func(_ *appsv1.StatefulSet, in *Input) {
			in.Pods[1].Status.Conditions = append(in.Pods[1].Status.Conditions, corev1.PodCondition{Type: api.NeedCondition, Reason: ReasonUpgradeBlocked})
			in.Pods[1].Annotations = map[string]string{api.TargetAnnotation: api.Target{Revision: target, Containers: []api.TargetImage{{}}, Blocked: "no"}.Encode()}
		}, 1, "waiting_for_owner: the upgrade is not offered: no", two, ReasonWaitingForOwners},
		"an old pod on a lost node": {func(_ *appsv1.StatefulSet, in *Input) {
			in.Nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown
		},
			1, "waiting_for_owner: node is not Ready", two, ReasonWaitingForOwners},
		"a new pod on a lost node": {func(_ *appsv1.StatefulSet, in *Input) {
			in.Nodes[0].Status.Conditions[0].Status, in.Pods[0].Status.Conditions[0].Status = corev1.ConditionUnknown, corev1.ConditionFalse
		}, 0, "updated: ", two, ReasonWaitingForOwners},
		"an old pod that no node runs": {func(_ *appsv1.StatefulSet, in *Input) { in.Pods[1].Spec.NodeName = "" },
			1, "unavailable: pod is not scheduled", "1 of 3 pods updated, 2 unavailable (db-1: pod is not scheduled, db-2: no pod)", ReasonUpdating},
		"a pod that is being deleted": {func(_ *appsv1.StatefulSet, in *Input) { in.Pods[1].DeletionTimestamp = &metav1.Time{Time: start} },
			1, "unavailable: pod is being deleted", "1 of 3 pods updated, 2 unavailable (db-1: pod is being deleted, db-2: no pod)", ReasonUpdating},
		"a new pod that is not Ready": {func(_ *appsv1.StatefulSet, in *Input) { in.Pods[0].Status.Conditions[0].Status = corev1.ConditionFalse },
			0, "unavailable: pod is not Ready", "0 of 3 pods updated, 2 unavailable (db-0: pod is not Ready, db-2: no pod), 1 waiting for their owner", ReasonWaitingForOwners},
		"a new pod that was not Ready for long": {func(set *appsv1.StatefulSet, in *Input) {
			set.Spec.MinReadySeconds, in.Pods[0].Status.Conditions[0].LastTransitionTime.Time = 60, start.Add(-time.Second)
		}, 0, "unavailable: Ready for less than minReadySeconds, 1m0s",
			"0 of 3 pods updated, 2 unavailable (db-0: Ready for less than minReadySeconds, 1m0s, db-2: no pod), 1 waiting for their owner", ReasonWaitingForOwners},
		"ordinals from 1": {func(set *appsv1.StatefulSet, _ *Input) { set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1} },
			0, "waiting_for_owner: ", "0 of 3 pods updated, 2 unavailable (db-2: no pod, db-3: no pod), 1 waiting for their owner", ReasonWaitingForOwners},
		"an old pod whose owner went back": {func(set *appsv1.StatefulSet, in *Input) {
			set.Spec.Replicas, in.RolledBack = new(int32(2)), func(*corev1.Pod) bool { return true }
		}, 1, "rolled_back: ", "1 of 2 pods updated, 1 rolled back by their owners (db-1)", ReasonRolledBack},
		"billions of replicas": {func(set *appsv1.StatefulSet, _ *Input) { set.Spec.Replicas = new(int32(math.MaxInt32)) },
			maxAbsent + 1, "unavailable: no pod",
			"1 of 1002 pods updated, 1000 unavailable (db-2: no pod, db-3: no pod, db-4: no pod, db-5: no pod, db-6: no pod and 995 more), 1 waiting for their owner", ReasonWaitingForOwners},
		"one replica": {func(set *appsv1.StatefulSet, _ *Input) { set.Spec.Replicas = nil }, 0, "updated: ", "1 of 1 pods updated", ReasonComplete},
		"no replicas": {func(set *appsv1.StatefulSet, _ *Input) { set.Spec.Replicas = new(int32(0)) }, -1, "", "0 of 0 pods updated", ReasonComplete},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set, in := database()
			tt.change(set, &in)
			p := NewStatefulSetPlan(set, in)
			if c := OTACondition(&p); p.Summary() != tt.summary || c.Reason != tt.reason {
				t.Errorf("got %s: %s\nwant %s: %s", c.Reason, p.Summary(), tt.reason, tt.summary)
			}
			if tt.pod < 0 {
				return
			}
			if n := p.Nodes[tt.pod]; string(n.State)+": "+n.Reason != tt.want {
				t.Errorf("%s is %s: %s, want %s", n.Name, n.State, n.Reason, tt.want)
			}
		})
	}
}

func TestAStatefulSetIsLookedAtAgainWhenItsPodsAreAvailable(t *testing.T) {
	set, in := database()
	set.Spec.MinReadySeconds, in.Pods[0].Status.Conditions[0].LastTransitionTime.Time = 60, start.Add(-time.Second)
	if p := NewStatefulSetPlan(set, in); !p.Wake.Equal(start.Add(59 * time.Second)) {
		t.Errorf("got %v", p.Wake)
	}
}
