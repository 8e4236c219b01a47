package rollout

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// images is how far a node is with the images of the target, in the order in which
// candidates are admitted.
type images int

const (
	// imagesThere also holds without PrepullAnnotation.
	imagesThere images = iota
	// imagesLate have had their time: the pod is replaced without them.
	imagesLate
	imagesAwaited
)

// imageWait reports whether a pod is kept until its images are there.
type imageWait struct {
	images images
	// until is when the wait ends at the latest; zero when that is not known, because the
	// node has not been asked to pull yet.
	until  time.Time
	reason string
}

// imagesFor returns how far p is with the images for the pod that replaces pod.
func (pl *planner) imagesFor(p *nodePods, pod *corev1.Pod) imageWait {
	c := api.Condition(pod, api.ImageCondition)
	if c != nil && api.RevisionOf(c) != pl.in.Revision {
		c = nil
	}
	if !pl.in.Options.Prepull || c != nil && c.Status == corev1.ConditionTrue {
		return imageWait{images: imagesThere}
	}
	since, asked := pl.prepulls.Since(pod)
	if !asked {
		return imageWait{images: imagesAwaited, reason: "its node is yet to be told to pull its images"}
	}
	if readySince := p.observed.readySince(); readySince.After(since) {
		since = readySince // it has had no time before
	}
	w := imageWait{images: imagesAwaited, until: since.Add(pl.in.Options.PrepullTimeout), reason: imageWaitReason(c)}
	if !pl.in.Now.Before(w.until) {
		w.images = imagesLate
	}
	return w
}

// imageWaitReason describes why the images of the next revision are not there, from a
// pod's condition, which is nil or not True.
func imageWaitReason(c *corev1.PodCondition) string {
	if c == nil {
		return "its images are being pulled"
	}
	switch c.Reason {
	case "", api.ReasonQueued, api.ReasonPulling:
		return "its images are being pulled"
	case api.ReasonTargetChanged:
		return "the images that were pulled are another revision's"
	default:
		return fmt.Sprintf("its images could not be pulled yet (%s)", quotable(strings.TrimPrefix(c.Reason, api.ImageReasonPrefix)))
	}
}

// pulls returns which pods should ask their nodes to pull, and since when.
func (pl *planner) pulls() map[types.UID]time.Time {
	if !pl.in.Options.Prepull {
		return nil
	}
	out := map[types.UID]time.Time{}
	for i := range pl.nodes {
		p := &pl.nodes[i]
		if !pl.selected(p.node) {
			continue
		}
		for _, pod := range p.live {
			if pl.requestsPull(pod) {
				out[pod.UID] = pl.prepulls.From(pod, pl.in.Now)
			}
		}
	}
	for _, d := range pl.plan.Delete {
		delete(out, d.Pod.UID)
	}
	return out
}

// requestsPull reports whether the pod should ask its node to pull. While no new pulls may
// begin, a pod that already asks goes on. A pod that is not scheduled asks nobody, since a
// hub reads only the pods of its own node.
func (pl *planner) requestsPull(pod *corev1.Pod) bool {
	if !pl.in.outdated(pod) || !scheduled(pod) {
		return false
	}
	if pl.in.Options.Paused || pl.plan.Breaker.Holds() {
		_, already := pl.prepulls.Since(pod)
		return already
	}
	return true
}
