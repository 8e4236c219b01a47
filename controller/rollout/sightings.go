package rollout

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Sightings is what Make remembers of one DaemonSet from one call to the next.
// Losing it, by a restart, delays a rollout and never makes it overstep the
// maximum. It is not safe for concurrent use.
type Sightings struct {
	trusting bool
	round    uint64 // counts calls of see
	nodes    map[string]nodeSight
	pods     map[types.UID]podSight
	breaker  breaker
}

// NewSightings returns one that has seen nothing, and counts from what it sees.
func NewSightings() *Sightings {
	return &Sightings{nodes: map[string]nodeSight{}, pods: map[types.UID]podSight{}}
}

// TrustingSightings returns one that takes the times in the conditions for true.
// It is for showing a state to a person, who has only looked for a moment, and
// not for deciding what to delete.
func TrustingSightings() *Sightings {
	s := NewSightings()
	s.trusting = true
	return s
}

// sight is since when something has had the status of its Ready condition.
type sight struct {
	status corev1.ConditionStatus
	since  time.Time
	// written is the transition's time in the words of whoever wrote it. If it
	// changes, something happened in between, even if the status is as before.
	written time.Time
}

func (s sight) ready() bool { return s.status == corev1.ConditionTrue }

// readyFor is 0 unless ready.
func (s sight) readyFor(now time.Time) time.Duration {
	if !s.ready() {
		return 0
	}
	return now.Sub(s.since)
}

type nodeSight struct {
	sight
	uid   types.UID
	round uint64
	// before is the status when it was looked at the last time, "" if it was not.
	before corev1.ConditionStatus
	// witnessed is false while the status is that of the first look: since when it
	// has been so, nobody saw.
	witnessed bool
}

// back is when the node became Ready, as far as anybody knows. If nobody saw it, its
// own word counts, which may be wrong but not later than the first look.
func (n nodeSight) back() time.Time {
	if !n.witnessed && !n.written.IsZero() && n.written.Before(n.since) {
		return n.written
	}
	return n.since
}

type podSight struct {
	sight
	round uint64
	// started is when the pod's containers first ran; zero before that.
	started time.Time
}

// see takes in what in shows, and forgets what is gone.
func (s *Sightings) see(in *Input) {
	s.round++
	for _, pod := range in.Pods {
		s.pods[pod.UID] = s.seePod(pod, in.Now)
	}
	for _, node := range in.Nodes {
		s.nodes[node.Name] = s.seeNode(node, in.Now)
	}
	maps.DeleteFunc(s.pods, func(_ types.UID, p podSight) bool { return p.round != s.round })
	maps.DeleteFunc(s.nodes, func(_ string, n nodeSight) bool { return n.round != s.round })
}

func (s *Sightings) seeNode(node *corev1.Node, now time.Time) nodeSight {
	before, known := s.nodes[node.Name]
	known = known && before.uid == node.UID
	written, status := readyCondition(node.Status.Conditions)
	out := nodeSight{uid: node.UID, round: s.round, sight: s.next(before.sight, known, status, written, now)}
	if known {
		out.before = before.status
		out.witnessed = before.witnessed || out.sight != before.sight
	}
	return out
}

func (s *Sightings) seePod(pod *corev1.Pod, now time.Time) podSight {
	before, known := s.pods[pod.UID]
	written, status := podReadyCondition(pod)
	out := podSight{round: s.round, started: before.started, sight: s.next(before.sight, known, status, written, now)}
	switch {
	case !out.started.IsZero() || pod.Status.Phase != corev1.PodRunning:
	case known:
		out.started = now
	default:
		// Nobody saw it start. It cannot have before this, and it is the control
		// plane's time.
		out.started = pod.CreationTimestamp.Time
	}
	return out
}

// next says since when a status holds that was before, if known, something else.
func (s *Sightings) next(before sight, known bool, status corev1.ConditionStatus, written, now time.Time) sight {
	if known && before.status == status && before.written.Equal(written) {
		return before
	}
	since := now
	if s.trusting && !known && !written.IsZero() && written.Before(now) {
		since = written
	}
	return sight{status: status, since: since, written: written}
}

// readyCondition returns Unknown for a node without the condition.
func readyCondition(conditions []corev1.NodeCondition) (written time.Time, status corev1.ConditionStatus) {
	for i := range conditions {
		if c := &conditions[i]; c.Type == corev1.NodeReady {
			return c.LastTransitionTime.Time, c.Status
		}
	}
	return time.Time{}, corev1.ConditionUnknown
}

// podReadyCondition returns Unknown for a pod without the condition.
func podReadyCondition(pod *corev1.Pod) (written time.Time, status corev1.ConditionStatus) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.LastTransitionTime.Time, c.Status
		}
	}
	return time.Time{}, corev1.ConditionUnknown
}
