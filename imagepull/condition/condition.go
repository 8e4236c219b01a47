// Package condition keeps the condition PodImageReady of a node's pods as it should be:
// it compares what the pods' watch shows with how far their pre-pulls are, and patches
// what differs while the cloud can be reached. So it does not matter when that is, nor
// what became of an earlier patch.
package condition

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// condition is what matters of the condition PodImageReady of a pod. The zero value is no
// condition.
type condition struct {
	status   corev1.ConditionStatus
	reason   string
	revision string
}

// currentOf is the condition of a pod now, and whether it is ours to change.
func currentOf(pod *corev1.Pod) (current condition, ours bool) {
	c := upgrade.Condition(pod, upgrade.ImageCondition)
	if c == nil {
		return condition{}, true
	}
	return condition{c.Status, c.Reason, upgrade.RevisionOf(c)}, strings.HasPrefix(c.Reason, upgrade.ImageReasonPrefix)
}

// desiredFor is the condition of a pod with a pre-pull.
func desiredFor(s nodeapi.ImagePull) condition {
	out := condition{corev1.ConditionFalse, upgrade.ReasonQueued, s.Revision}
	if s.State == nodeapi.Ready {
		out.status, out.reason = corev1.ConditionTrue, upgrade.ReasonReady
		return out
	}
	for _, i := range s.Images {
		switch {
		case i.Reason != "": // until it is mended: a condition is not to change with each attempt
			out.reason = upgrade.ImageReasonPrefix + i.Reason
			return out
		case i.State != nodeapi.Queued:
			out.reason = upgrade.ReasonPulling
		}
	}
	return out
}

// desiredWithoutPull is the condition of a pod without a pre-pull. suppressed is the revision
// for which it is to have none.
func desiredWithoutPull(pod *corev1.Pod, current condition, suppressed string) condition {
	t, ok, err := upgrade.TargetOf(pod)
	switch {
	case err != nil:
		return current
	case ok && t.Revision == suppressed:
		return condition{}
	case !ok:
		return condition{} // there is no upgrade to hold back
	case current.reason == upgrade.ReasonTargetChanged, current.status != corev1.ConditionTrue && current.revision != t.Revision:
		return condition{corev1.ConditionFalse, upgrade.ReasonTargetChanged, t.Revision}
	case current.status == corev1.ConditionTrue && current.revision != t.Revision:
		return current // which is clear: it names the other revision
	}
	return condition{} // cancelled
}

// patchTo is the strategic merge patch to the desired condition. Conditions are
// merged by their type; the UID keeps it from a pod that has taken the name.
func patchTo(uid types.UID, desired, current condition, now time.Time) []byte {
	c := map[string]any{"type": upgrade.ImageCondition}
	if desired == (condition{}) {
		c["$patch"] = "delete"
	} else {
		c["status"], c["reason"], c["message"] = desired.status, desired.reason, upgrade.Message(desired.revision)
		if desired.status != current.status {
			c["lastTransitionTime"] = metav1.NewTime(now)
		}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": uid},
		"status":   map[string]any{"conditions": []any{c}},
	})
	if err != nil {
		panic("condition: encode patch: " + err.Error()) // strings and a time only
	}
	return patch
}
