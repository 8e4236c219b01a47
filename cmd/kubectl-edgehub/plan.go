package main

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

// servesNobody begins the reason for deleting a pod that is not Ready; what is
// wrong with the pod follows.
const servesNobody = "it serves nobody: "

// asItIs makes of a plan, which takes its own deletions for done, what there is
// before anybody has carried them out.
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
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}
