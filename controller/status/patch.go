package status

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// statusPatch is a strategic merge patch of the status of a DaemonSet or pod. Conditions
// are merged by their type, so those of others stay as they are. The UID makes the
// apiserver refuse the patch when the name belongs to another object by now.
type statusPatch struct {
	Metadata struct {
		UID types.UID `json:"uid"`
		// Annotations, of pods only, are merged by key, and a nil value removes one.
		Annotations map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status struct {
		Conditions []conditionPatch `json:"conditions,omitempty"`
	} `json:"status"`
}

type conditionPatch struct {
	// Directive "delete" removes the condition of this type.
	Directive string                 `json:"$patch,omitempty"`
	Type      string                 `json:"type"`
	Status    corev1.ConditionStatus `json:"status,omitempty"`
	Reason    string                 `json:"reason,omitempty"`
	Message   string                 `json:"message,omitempty"`
	// LastTransitionTime is left out, and so stays as it is, unless Status changes.
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// patchCondition sets a condition whose status was before, or removes it if status is "".
func patchCondition(t string, before, status corev1.ConditionStatus, reason, message string, now time.Time) conditionPatch {
	if status == "" {
		return conditionPatch{Directive: "delete", Type: t}
	}
	c := conditionPatch{Type: t, Status: status, Reason: reason, Message: message}
	if status != before {
		c.LastTransitionTime = &metav1.Time{Time: now}
	}
	return c
}

func (p *statusPatch) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic("controller: encode patch: " + err.Error()) // strings and times only
	}
	return b
}
