package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of ImageCondition. Any other reason with this prefix is the kind of the last failure,
// after which the node retries. A reason without the prefix is not the hub's.
const (
	ImageReasonPrefix = "Prepull"

	ReasonQueued  = ImageReasonPrefix + "Queued"
	ReasonPulling = ImageReasonPrefix + "Pulling"
	ReasonReady   = ImageReasonPrefix + "Ready"
	// ReasonTargetChanged means that images were pulled, and that the pod has another target now.
	ReasonTargetChanged = ImageReasonPrefix + "TargetChanged"
)

// Prepulls reads Target.Prepull of pods for one revision. It decodes each value of
// TargetAnnotation once: thousands of pods have one of a few values. It is not safe for
// concurrent use.
type Prepulls struct {
	revision string
	since    map[string]time.Time // by the value of TargetAnnotation; zero if Prepull is not set
}

// NewPrepulls returns a Prepulls for the revision with this hash.
func NewPrepulls(revision string) *Prepulls {
	return &Prepulls{revision: revision, since: map[string]time.Time{}}
}

// Since returns since when the node should pull the revision's images automatically, and false if
// it should not.
func (p *Prepulls) Since(pod *corev1.Pod) (time.Time, bool) {
	value, ok := pod.Annotations[TargetAnnotation]
	if !ok {
		return time.Time{}, false
	}
	since, known := p.since[value]
	if !known {
		target, _, err := TargetOf(pod)
		if err == nil && target.Revision == p.revision && target.Prepull != nil {
			since = target.Prepull.Time
		}
		p.since[value] = since
	}
	return since, !since.IsZero()
}

// From returns the Prepull for a new target of pod: the pod's own if it has one, so that it does
// not change, and otherwise now. It ignores a time in the future, which comes from a wrong clock.
func (p *Prepulls) From(pod *corev1.Pod, now time.Time) time.Time {
	if since, ok := p.Since(pod); ok && !since.After(now) {
		return since
	}
	return now
}
