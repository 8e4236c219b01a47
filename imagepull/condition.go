package imagepull

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Conditions returns the condition PodImageReady that a pod should have, without times: none if it is not the hub's to
// change, and one without status if the pod should have none.
func (p *Puller) Conditions(pod *corev1.Pod) []corev1.PodCondition {
	current := api.Condition(pod, api.ImageCondition)
	j, state := p.queue.jobWithState(pod.UID)
	switch {
	case j != nil && !j.Cancelled:
		return []corev1.PodCondition{conditionOf(state)}
	case !isOurs(current):
		return nil
	case j != nil: // the owner has cancelled the pre-pull
		return []corev1.PodCondition{conditionWithoutPull(pod, current, j.Revision)}
	}
	return []corev1.PodCondition{conditionWithoutPull(pod, current, "")}
}

// isOurs reports whether a pod has a condition that the hub has set.
func isOurs(c *corev1.PodCondition) bool {
	return c != nil && strings.HasPrefix(c.Reason, api.ImageReasonPrefix)
}

func imageCondition(status corev1.ConditionStatus, reason, revision string) corev1.PodCondition {
	return corev1.PodCondition{Type: api.ImageCondition, Status: status, Reason: reason, Message: api.Message(revision)}
}

// conditionOf returns the condition that reports a pre-pull.
func conditionOf(s api.ImagePull) corev1.PodCondition {
	if s.State == api.Ready {
		return imageCondition(corev1.ConditionTrue, api.ReasonReady, s.Revision)
	}
	reason := api.ReasonQueued
	for _, i := range s.Images {
		switch {
		case i.Reason != "": // reported until an attempt succeeds: the condition must not change with each attempt
			return imageCondition(corev1.ConditionFalse, api.ImageReasonPrefix+i.Reason, s.Revision)
		case i.State != api.Queued:
			reason = api.ReasonPulling
		}
	}
	return imageCondition(corev1.ConditionFalse, reason, s.Revision)
}

// conditionWithoutPull returns the condition of a pod that has this one but no pre-pull. cancelled is the revision whose
// pre-pull was cancelled, or "".
func conditionWithoutPull(pod *corev1.Pod, current *corev1.PodCondition, cancelled string) corev1.PodCondition {
	none := corev1.PodCondition{Type: api.ImageCondition}
	t, ok, err := api.TargetOf(pod)
	isTrue, isForTarget := current.Status == corev1.ConditionTrue, api.RevisionOf(current) == t.Revision
	switch {
	case err != nil:
		return *current
	case !ok, t.Revision == cancelled: // no upgrade needs to wait for images
		return none
	case current.Reason == api.ReasonTargetChanged, !isTrue && !isForTarget:
		return imageCondition(corev1.ConditionFalse, api.ReasonTargetChanged, t.Revision)
	case isTrue && !isForTarget:
		return *current // it names the revision whose images are ready
	}
	return none // the pre-pull has ended
}
