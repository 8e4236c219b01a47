package rollout

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// WaitingForOwner nodes have an old pod that their owner has yet to upgrade, with the strategy OTA.
const WaitingForOwner State = "waiting_for_owner"

// ReasonWaitingForOwners is that of api.CompleteCondition with the strategy OTA.
const ReasonWaitingForOwners = "WaitingForOwners"

// ReasonUpgradeBlocked is that of the condition PodNeedUpgrade of a pod that needs an upgrade, and whose node would not get
// the next pod. Target.Blocked has the words; the message of the condition is for programs.
const ReasonUpgradeBlocked = "UpgradeBlocked"

// OTAStates returns the states of nodes with the strategy OTA, in the order in which they are shown.
func OTAStates() []State {
	return []State{Updated, Unavailable, WaitingForOwner, HeldByPlacement, RolledBack}
}

// NewOTAPlan returns where the nodes of a DaemonSet with the strategy OTA stand. It deletes nothing,
// and reads no Options: the rules of a paused rollout distinguish old pods from new ones, and old
// pods wait for the owners of their nodes, whether these are Ready or not.
func NewOTAPlan(in Input) Plan {
	in.Options = Options{Paused: true, MaxUnavailable: DefaultMaxUnavailable, Continue: in.Revision}
	p := NewPlan(in)
	known := map[string]*corev1.Pod{} // that their nodes know
	for _, pod := range in.Pods {
		if scheduled(pod) {
			known[pod.Name] = pod
		}
	}
	p.Counts = map[State]int{}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		switch {
		case n.State == Updated || n.State == Unavailable || n.State == HeldByPlacement || n.State == RolledBack:
		case known[n.Pod] != nil:
			n.State, n.Reason = WaitingForOwner, with(n.Reason, obstacleOn(known[n.Pod], in.Revision))
		default:
			n.State = Unavailable // no owner can upgrade what is not there
		}
		p.Counts[n.State]++
	}
	return p
}

// obstacleOn returns why the owner of a pod is not offered revision, as the pod's mark has it, or else how far its images are.
func obstacleOn(pod *corev1.Pod, revision string) string {
	if c := api.Condition(pod, api.NeedCondition); c != nil && c.Reason == ReasonUpgradeBlocked {
		if t, ok, err := api.TargetOf(pod); ok && err == nil && t.Revision == revision {
			return "the upgrade is not offered: " + t.Blocked
		}
	}
	return imagesOn(pod, revision)
}

// imagesOn describes the state of revision's images on the pod's node, "" if nobody requested them there.
func imagesOn(pod *corev1.Pod, revision string) string {
	c := api.Condition(pod, api.ImageCondition)
	switch {
	case c == nil || api.RevisionOf(c) != revision:
		return ""
	case c.Status == corev1.ConditionTrue:
		return "its images are there"
	default:
		return imageWaitReason(c)
	}
}

// with returns reason and another one, each if it is not "".
func with(reason, another string) string {
	if reason == "" || another == "" {
		return reason + another
	}
	return reason + ", " + another
}

// OTACondition is api.CompleteCondition for a plan of NewOTAPlan, or of NewStatefulSetPlan.
func OTACondition(p *Plan) appsv1.DaemonSetCondition {
	_, reason, message := progress(p)
	if p.Counts[WaitingForOwner] > 0 {
		reason = ReasonWaitingForOwners
	}
	return condition(api.CompleteCondition, p.Complete(), reason, messagePrefix+p.Revision+": "+message)
}

// HeldUntil returns until when the owner of pod holds it, the zero time if it is not held, and the
// owner's reason, which the node may have written anything into. It knows of the holds before only
// what a single look at the pod shows.
func HeldUntil(pod *corev1.Pod, maxHold time.Duration, now time.Time) (until time.Time, reason string) {
	h := nextHold(nil, pod, maxHold, now)
	if h == nil || !now.Before(h.end(maxHold)) {
		return time.Time{}, ""
	}
	return h.end(maxHold), h.reason
}
