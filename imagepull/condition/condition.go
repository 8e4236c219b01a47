package condition

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// condition is the condition PodImageReady without its times. The zero value is a pod without
// the condition.
type condition struct {
	status   corev1.ConditionStatus
	reason   string
	revision string
}

// currentOf returns the condition of a pod, and whether the hub may change it.
func currentOf(pod *corev1.Pod) (current condition, ours bool) {
	c := api.Condition(pod, api.ImageCondition)
	if c == nil {
		return condition{}, true
	}
	return condition{c.Status, c.Reason, api.RevisionOf(c)}, strings.HasPrefix(c.Reason, api.ImageReasonPrefix)
}

// desiredFor returns the condition that reports a pre-pull.
func desiredFor(s api.ImagePull) condition {
	out := condition{corev1.ConditionFalse, api.ReasonQueued, s.Revision}
	if s.State == api.Ready {
		out.status, out.reason = corev1.ConditionTrue, api.ReasonReady
		return out
	}
	for _, i := range s.Images {
		switch {
		case i.Reason != "": // reported until an attempt succeeds: the condition must not change with each attempt
			out.reason = api.ImageReasonPrefix + i.Reason
			return out
		case i.State != api.Queued:
			out.reason = api.ReasonPulling
		}
	}
	return out
}

// desiredWithoutPull returns the condition for a pod that has one but no pre-pull. suppressed is
// the revision for which the pod must not have a condition.
func desiredWithoutPull(pod *corev1.Pod, current condition, suppressed string) condition {
	t, ok, err := api.TargetOf(pod)
	switch {
	case err != nil:
		return current
	case !ok, t.Revision == suppressed: // no upgrade needs to wait for images
		return condition{}
	case current.reason == api.ReasonTargetChanged, current.status != corev1.ConditionTrue && current.revision != t.Revision:
		return condition{corev1.ConditionFalse, api.ReasonTargetChanged, t.Revision}
	case current.status == corev1.ConditionTrue && current.revision != t.Revision:
		return current // it names the revision whose images are ready
	}
	return condition{} // the pre-pull was cancelled
}

// patchTo returns the strategic merge patch to the desired condition, which merges conditions by
// type. The UID protects another pod that has taken the name.
func patchTo(uid types.UID, desired, current condition, now time.Time) []byte {
	c := map[string]any{"type": api.ImageCondition}
	if desired == (condition{}) {
		c["$patch"] = "delete"
	} else {
		c["status"], c["reason"], c["message"] = desired.status, desired.reason, api.Message(desired.revision)
		if desired.status != current.status {
			c["lastTransitionTime"] = metav1.NewTime(now)
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"conditions": []any{c}},
	})
	if err != nil {
		panic("condition: encode patch: " + err.Error()) // only strings and a time
	}
	return patch
}
