package rollout

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// NewStatefulSetPlan returns where the pods of a StatefulSet stand, which has the strategy OTA. Its Nodes are the pods
// that the StatefulSet should have, by ordinal. It deletes nothing, and reads of in neither DaemonSet nor Options.
func NewStatefulSetPlan(set *appsv1.StatefulSet, in Input) Plan {
	in.Observations.observe(&in)
	p := Plan{Revision: in.Revision, Counts: map[State]int{}, pods: true}
	pods := map[string]*corev1.Pod{}
	for _, pod := range in.Pods {
		pods[pod.Name] = pod
	}
	for _, name := range PodNames(set, func(name string) bool { return pods[name] != nil }) {
		n := NodeStatus{Name: name, State: Unavailable, Reason: noPod}
		if pod := pods[name]; pod != nil {
			n.Pod, n.Revision = name, revisionOf(pod)
			n.State, n.Reason = in.stateOfPod(pod, set.Spec.MinReadySeconds, &p)
		}
		p.Counts[n.State]++
		p.Nodes = append(p.Nodes, n)
	}
	return p
}

func (in *Input) stateOfPod(pod *corev1.Pod, minReadySeconds int32, p *Plan) (State, string) {
	lost, observed := !in.Observations.nodes[pod.Spec.NodeName].ready(), in.Observations.pods[pod.UID]
	minReady := time.Duration(minReadySeconds) * time.Second
	switch {
	case in.isTerminating(pod):
		return Unavailable, "pod is being deleted"
	case !scheduled(pod):
		return Unavailable, unscheduled(pod) // no owner sees it
	case revisionOf(pod) != in.Revision:
		reason := ""
		if lost {
			reason = "node is not Ready"
		}
		if in.rolledBack(pod) {
			return RolledBack, reason
		}
		return WaitingForOwner, with(reason, obstacleOn(pod, in.Revision))
	case lost:
		return Updated, "" // which is all that can be known
	case !observed.ready():
		return Unavailable, notReadyReason(pod)
	case observed.readyFor(in.Now) < minReady:
		p.wakeAt(observed.since.Add(minReady))
		return Unavailable, fmt.Sprintf("Ready for less than minReadySeconds, %v", minReady)
	}
	return Updated, ""
}

// maxAbsent is after how many pods that are not there the others are not looked at: whoever may create a StatefulSet may
// ask for billions of replicas.
const maxAbsent = 1000

// PodNames are the names of the pods that set should have, by ordinal. there reports whether there is one of that name.
func PodNames(set *appsv1.StatefulSet, there func(name string) bool) []string {
	replicas, first := int32(1), int32(0)
	if set.Spec.Replicas != nil {
		replicas = *set.Spec.Replicas
	}
	if set.Spec.Ordinals != nil {
		first = set.Spec.Ordinals.Start
	}
	var out []string
	absent := 0
	for i := int32(0); i < replicas && absent < maxAbsent; i++ {
		name := fmt.Sprintf("%s-%d", set.Name, first+i)
		if !there(name) {
			absent++
		}
		out = append(out, name)
	}
	return out
}
