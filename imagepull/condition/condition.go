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

// saying is what the condition PodImageReady of a pod says. The zero value is no
// condition.
type saying struct {
	status   corev1.ConditionStatus
	reason   string
	revision string
}

// saidBy is what a pod says now, and whether that is ours to change.
func saidBy(pod *corev1.Pod) (have saying, ours bool) {
	c := upgrade.Condition(pod, upgrade.ImageCondition)
	if c == nil {
		return saying{}, true
	}
	return saying{c.Status, c.Reason, upgrade.RevisionOf(c)}, strings.HasPrefix(c.Reason, upgrade.ImageReasonPrefix)
}

// wantedOf is what a pod with a pre-pull should say.
func wantedOf(s nodeapi.ImagePull) saying {
	out := saying{corev1.ConditionFalse, upgrade.ReasonQueued, s.Revision}
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

// leftOver is what a pod should say that says have, and has no pre-pull. dismissed is
// the revision that it is to say nothing of.
func leftOver(pod *corev1.Pod, have saying, dismissed string) saying {
	t, ok, err := upgrade.TargetOf(pod)
	switch {
	case err != nil:
		return have
	case ok && t.Revision == dismissed:
		return saying{}
	case !ok:
		return saying{} // there is no upgrade to hold back
	case have.reason == upgrade.ReasonTargetChanged, have.status != corev1.ConditionTrue && have.revision != t.Revision:
		return saying{corev1.ConditionFalse, upgrade.ReasonTargetChanged, t.Revision}
	case have.status == corev1.ConditionTrue && have.revision != t.Revision:
		return have // which says it all: it names the other revision
	}
	return saying{} // cancelled
}

// patchTo is the strategic merge patch that makes a pod say want. Conditions are
// merged by their type; the UID keeps it from a pod that has taken the name.
func patchTo(uid types.UID, want, have saying, now time.Time) []byte {
	c := map[string]any{"type": upgrade.ImageCondition}
	if want == (saying{}) {
		c["$patch"] = "delete"
	} else {
		c["status"], c["reason"], c["message"] = want.status, want.reason, upgrade.Message(want.revision)
		if want.status != have.status {
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
