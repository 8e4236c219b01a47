package progress

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/cmd/internal/format"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// judgeStatefulSet counts which pods have been upgraded. A StatefulSet has a row for each pod that
// it should have, and no node of its own.
func (r *Report) judgeStatefulSet(set *appsv1.StatefulSet, o Objects, now time.Time) {
	if _, err := rollout.ParseOTA(set.Annotations); err != nil {
		r.wrong(err.Error())
		return
	}
	if r.awaitsRevision() {
		return
	}
	pods, lost := map[string]*corev1.Pod{}, map[string]bool{}
	for _, pod := range o.Pods {
		pods[pod.Name] = pod
	}
	for _, node := range o.Nodes {
		lost[node.Name] = !isReady(node)
	}
	for _, s := range memberStates {
		r.Counts[s.state] = 0
	}
	unmarked, unscheduled := 0, 0
	for _, name := range podNames(set, pods) {
		pod := pods[name]
		n := Node{Pod: name, State: rollout.Unavailable, Reason: "no pod"}
		if pod != nil {
			n = r.judgePod(pod, lost[pod.Spec.NodeName], time.Duration(set.Spec.MinReadySeconds)*time.Second, now)
			switch {
			case n.Node == "" && pod.Labels[revisionLabel] != r.Revision:
				unscheduled++
			case n.State != rollout.Unavailable && !marked(pod, r.Revision):
				unmarked++
			}
		}
		r.Counts[n.State]++
		r.Nodes = append(r.Nodes, n)
	}
	r.warnUnmarked(unmarked)
	r.summary()
	r.sumUpOTA(unscheduled)
}

// memberStates are those of pods of a StatefulSet.
var memberStates = []struct {
	state rollout.State
	text  string
}{
	{rollout.Updated, "updated"}, {rollout.Unavailable, "unavailable"},
	{rollout.WaitingForOwner, "waiting for their owner"}, {rollout.RolledBack, "rolled back by their owners"},
}

// summary sets Message.
func (r *Report) summary() {
	out := []string{fmt.Sprintf("%d of %d pods updated", r.Counts[rollout.Updated], len(r.Nodes))}
	for _, s := range memberStates[1:] {
		if n := r.Counts[s.state]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, s.text))
		}
	}
	r.Message = format.Joined(out...)
}

func (r *Report) judgePod(pod *corev1.Pod, nodeLost bool, minReady time.Duration, now time.Time) Node {
	n := Node{Node: pod.Spec.NodeName, Pod: pod.Name, Revision: pod.Labels[revisionLabel], State: rollout.Unavailable}
	since, ready := readySince(pod)
	switch {
	case pod.DeletionTimestamp != nil:
		n.Reason = "pod is being deleted"
	case pod.Spec.NodeName == "":
		n.Reason = "pod is not scheduled" // no owner sees it
	case pod.Labels[revisionLabel] != r.Revision:
		n.State, n.Reason = rollout.WaitingForOwner, imagesOn(pod, r.Revision)
		if rolledBack(pod, r.Revision) {
			n.State, n.Reason = rollout.RolledBack, ""
		}
		if nodeLost {
			n.Reason = format.Joined("node is not Ready", n.Reason)
		}
	case nodeLost:
		n.State = rollout.Updated // which is all that can be known
	case !ready:
		n.Reason = "pod is not Ready"
	case now.Sub(since) < minReady:
		n.Reason = fmt.Sprintf("Ready for less than minReadySeconds, %v", minReady)
	default:
		n.State = rollout.Updated
	}
	return n
}

// maxMissing is after how many missing pods of a StatefulSet the others are not looked at: whoever may create one
// may ask for billions of replicas.
const maxMissing = 1000

// podNames are the names of the pods that set should have.
func podNames(set *appsv1.StatefulSet, pods map[string]*corev1.Pod) []string {
	replicas, first := int32(1), int32(0)
	if set.Spec.Replicas != nil {
		replicas = *set.Spec.Replicas
	}
	if set.Spec.Ordinals != nil {
		first = set.Spec.Ordinals.Start
	}
	var out []string
	missing := 0
	for i := int32(0); i < replicas && missing < maxMissing; i++ {
		name := fmt.Sprintf("%s-%d", set.Name, first+i)
		if pods[name] == nil {
			missing++
		}
		out = append(out, name)
	}
	return out
}

func isReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
