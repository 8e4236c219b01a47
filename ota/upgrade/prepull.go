package upgrade

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of ImageCondition. Any other with this prefix is the kind of the last
// failure, after which the node tries again; one without it is not the hub's.
const (
	ImageReasonPrefix = "Prepull"

	ReasonQueued  = ImageReasonPrefix + "Queued"
	ReasonPulling = ImageReasonPrefix + "Pulling"
	ReasonReady   = ImageReasonPrefix + "Ready"
	// ReasonTargetChanged is for images that were pulled and are of another revision
	// than the upgrade would be to by now.
	ReasonTargetChanged = ImageReasonPrefix + "TargetChanged"
)

// Prepulls reads from pods since when their nodes are to pull the images of one
// revision without being asked. Thousands of pods carry one of a few values, and
// each value is decoded once. It is not safe for concurrent use.
type Prepulls struct {
	revision string
	since    map[string]time.Time // by the value of TargetAnnotation; zero for none
}

// NewPrepulls is for the revision with this hash.
func NewPrepulls(revision string) *Prepulls {
	return &Prepulls{revision: revision, since: map[string]time.Time{}}
}

// Since returns false for a pod whose node is not to pull, or is to pull the images
// of another revision.
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

// From is what Prepull of pod's target should be: the time that is there, so that it
// stays as it is, and now for a pod that has none. A time to come is none: whoever
// wrote it had a wrong clock.
func (p *Prepulls) From(pod *corev1.Pod, now time.Time) time.Time {
	if since, ok := p.Since(pod); ok && !since.After(now) {
		return since
	}
	return now
}
