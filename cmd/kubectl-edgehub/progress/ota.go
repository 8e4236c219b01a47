package progress

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// judgeOTA counts which nodes have upgraded.
func (r *Report) judgeOTA(ds *appsv1.DaemonSet, o Objects, now time.Time) {
	if _, err := rollout.ParseOTA(ds.Annotations); err != nil {
		r.wrong(err.Error())
		return
	}
	if r.awaitsRevision() {
		return
	}
	plan := rollout.NewOTAPlan(rollout.Input{
		DaemonSet: ds, Revision: r.Revision, Nodes: o.Nodes, Pods: o.Pods, Now: now,
		Observations: rollout.NewTrustingObservations(), RolledBack: func(pod *corev1.Pod) bool { return rolledBack(pod, r.Revision) },
	})
	pods := map[string]*corev1.Pod{}
	for _, pod := range o.Pods {
		pods[pod.Name] = pod
	}
	unmarked, unscheduled := 0, 0
	r.fill(&plan, rollout.OTAStates(), func(n *rollout.NodeStatus) {
		pod := pods[n.Pod]
		if n.State == rollout.Unavailable && pod != nil && n.Revision != r.Revision {
			unscheduled++ // its node does not know it
		}
		if pod != nil && n.State != rollout.Unavailable && !marked(pod, r.Revision) {
			unmarked++
		}
	})
	r.warnUnmarked(unmarked)
	r.Message = plan.Summary()
	r.sumUpOTA(unscheduled)
	if r.State == Complete && r.Counts[rollout.HeldByPlacement] > 0 {
		r.Advice = plan.Placement()
	}
}

func (r *Report) warnUnmarked(pods int) {
	r.Spoke = pods == 0
	if !r.Spoke {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the controller has not yet told %d pods about this revision", pods))
	}
}

// sumUpOTA sets the phase of a workload with OTA. unscheduled is the number of pods of an old revision
// that are not scheduled.
func (r *Report) sumUpOTA(unscheduled int) {
	switch {
	case r.Counts[rollout.WaitingForOwner] > 0:
		r.State, r.Advice = Waiting, "the owner of a node upgrades its pod, by a POST to the node's own API; nothing is done from here"
	case unscheduled > 0:
		r.State, r.Advice = Waiting, fmt.Sprintf("%d pods are not scheduled, and keep their old revision until somebody deletes them", unscheduled)
	case r.Counts[rollout.Unavailable] > 0:
		r.State, r.Advice = Updating, "the last pods are starting"
	case r.Counts[rollout.RolledBack] > 0:
		r.State, r.Advice = Held, adviceWentBack
	default:
		r.State, r.Advice = Complete, "every "+strings.TrimSuffix(r.members(), "s")+" runs the target revision"
	}
}

// members are what r.Nodes are.
func (r *Report) members() string {
	if r.Kind == workload.StatefulSet {
		return "pods"
	}
	return "nodes"
}

// marked reports whether the controller's condition on pod is about revision.
func marked(pod *corev1.Pod, revision string) bool {
	c := upgrade.Condition(pod, upgrade.NeedCondition)
	return c != nil && upgrade.RevisionOf(c) == revision
}

// imagesOn describes the state of revision's images on the pod's node, "" if nobody requested
// them there.
func imagesOn(pod *corev1.Pod, revision string) string {
	c := upgrade.Condition(pod, upgrade.ImageCondition)
	switch {
	case c == nil || upgrade.RevisionOf(c) != revision:
		return ""
	case c.Status == corev1.ConditionTrue:
		return "its images are there"
	default:
		return rollout.ImageWaitReason(c)
	}
}
