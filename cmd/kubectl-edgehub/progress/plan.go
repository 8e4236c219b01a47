package progress

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// servesNobody begins the reason for deleting a pod that is not Ready; its problem follows.
const servesNobody = "it serves nobody: "

// asItIs corrects a plan, which counts its own deletions as done, to the state before them.
func asItIs(plan *rollout.Plan, minReady time.Duration, now time.Time) {
	turns := map[string]rollout.Deletion{}
	for _, d := range plan.Delete {
		turns[rollout.NodeOf(d.Pod)] = d
	}
	for i := range plan.Nodes {
		n := &plan.Nodes[i]
		d, ok := turns[n.Name]
		if !ok {
			continue
		}
		plan.Counts[n.State]--
		n.Pod, n.Revision = d.Pod.Name, d.Pod.Labels[revisionLabel]
		switch since, ready := readySince(d.Pod); {
		case !ready:
			n.Reason = strings.TrimPrefix(d.Reason, servesNobody)
		case now.Sub(since) < minReady:
			n.Reason = "Ready for less than minReadySeconds, " + minReady.String()
		default:
			n.State, n.Reason = rollout.Pending, "it is next"
			plan.Unavailable--
		}
		plan.Counts[n.State]++
	}
	plan.Delete = nil
}

func readySince(pod *corev1.Pod) (time.Time, bool) {
	c := upgrade.Condition(pod, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return time.Time{}, false
	}
	return c.LastTransitionTime.Time, true
}
