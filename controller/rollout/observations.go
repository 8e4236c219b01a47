package rollout

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Observations is what NewPlan remembers of one DaemonSet from one call to the next.
// Losing it in a restart delays a rollout and never makes it exceed the maximum. It is not
// safe for concurrent use.
type Observations struct {
	trusting bool
	nodes    map[string]nodeObservation
	pods     map[types.UID]podObservation
	breaker  breaker
	// lacking is since when nodes have had no pod that should have one.
	lacking map[string]time.Time
}

// NewObservations returns one without observations. Times count from the first one.
func NewObservations() *Observations { return &Observations{} }

// NewTrustingObservations returns one that trusts the times in the conditions. It is for the strategy OTA, which only
// reports, and not for deciding what to delete.
func NewTrustingObservations() *Observations { return &Observations{trusting: true} }

// observation is since when something has had the status of its Ready condition.
type observation struct {
	status corev1.ConditionStatus
	since  time.Time
	// transitionTime is that of the condition, by the clock of its writer. If it
	// changes, something happened in between, even if the status is as before.
	transitionTime time.Time
}

func (s observation) ready() bool { return s.status == corev1.ConditionTrue }

// readyFor is 0 unless ready.
func (s observation) readyFor(now time.Time) time.Duration {
	if !s.ready() {
		return 0
	}
	return now.Sub(s.since)
}

type nodeObservation struct {
	observation
	uid types.UID
	// before is the status when it was looked at the last time, "" if it was not.
	before corev1.ConditionStatus
	// witnessed is false while the status is that of the first look, so that the
	// transition was not observed.
	witnessed bool
}

// readySince is when the node became Ready. If that was not observed, it is the
// transition time that the node wrote, which may be wrong but not later than the first look.
func (n nodeObservation) readySince() time.Time {
	if !n.witnessed && !n.transitionTime.IsZero() && n.transitionTime.Before(n.since) {
		return n.transitionTime
	}
	return n.since
}

type podObservation struct {
	observation
	// started is when the pod's containers first ran; zero before that.
	started time.Time
	hold    *hold // nil if it was never held
}

// observe records the nodes and pods of in, and forgets those that are gone.
func (s *Observations) observe(in *Input) {
	pods := make(map[types.UID]podObservation, len(in.Pods))
	for _, pod := range in.Pods {
		pods[pod.UID] = s.observePod(pod, in)
	}
	nodes := make(map[string]nodeObservation, len(in.Nodes))
	for _, node := range in.Nodes {
		nodes[node.Name] = s.observeNode(node, in.Now)
	}
	s.pods, s.nodes = pods, nodes
}

func (s *Observations) observeNode(node *corev1.Node, now time.Time) nodeObservation {
	before, known := s.nodes[node.Name]
	known = known && before.uid == node.UID
	out := nodeObservation{uid: node.UID, observation: s.next(before.observation, known, nodeReady(node), now)}
	if known {
		out.before = before.status
		out.witnessed = before.witnessed || out.observation != before.observation
	}
	return out
}

func (s *Observations) observePod(pod *corev1.Pod, in *Input) podObservation {
	before, known := s.pods[pod.UID]
	out := podObservation{
		started:     before.started,
		observation: s.next(before.observation, known, podReady(pod), in.Now),
		hold:        nextHold(before.hold, pod, in.Options.Policy.MaxHold, in.Now),
	}
	switch {
	case !out.started.IsZero() || pod.Status.Phase != corev1.PodRunning:
	case known:
		out.started = in.Now
	default:
		// Its start was not observed. It cannot have started before this time,
		// which is the control plane's.
		out.started = pod.CreationTimestamp.Time
	}
	return out
}

// next returns the observation that follows before, which counts only if known, when the
// condition has the status and transitionTime of seen.
func (s *Observations) next(before observation, known bool, seen observation, now time.Time) observation {
	if known && before.status == seen.status && before.transitionTime.Equal(seen.transitionTime) {
		return before
	}
	seen.since = now
	if s.trusting && !known && !seen.transitionTime.IsZero() && seen.transitionTime.Before(now) {
		seen.since = seen.transitionTime
	}
	return seen
}

// IsReady reports whether a node is Ready; nil is not.
func IsReady(node *corev1.Node) bool { return node != nil && nodeReady(node).ready() }

// nodeReady reads the Ready condition, Unknown for a node without it. since is left out.
func nodeReady(node *corev1.Node) observation {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return observation{status: c.Status, transitionTime: c.LastTransitionTime.Time}
		}
	}
	return observation{status: corev1.ConditionUnknown}
}

// podReady is nodeReady for a pod.
func podReady(pod *corev1.Pod) observation {
	if c := api.Condition(pod, corev1.PodReady); c != nil {
		return observation{status: c.Status, transitionTime: c.LastTransitionTime.Time}
	}
	return observation{status: corev1.ConditionUnknown}
}
