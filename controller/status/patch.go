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
		// ResourceVersion, if it is not "", makes the apiserver refuse the patch of an object that has changed.
		ResourceVersion string `json:"resourceVersion,omitempty"`
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

// setCondition sets a condition of a pod if it differs.
func (p *statusPatch) setCondition(t corev1.PodConditionType, have, want podCondition, now time.Time) {
	if have != want {
		p.Status.Conditions = append(p.Status.Conditions, patchCondition(string(t), have.status, want.status, want.reason, want.message, now))
	}
}

// annotate sets an annotation, or removes it if want is "".
func (p *statusPatch) annotate(key, have, want string) {
	if have == want {
		return
	}
	if p.Metadata.Annotations == nil {
		p.Metadata.Annotations = map[string]*string{}
	}
	p.Metadata.Annotations[key] = nil
	if want != "" {
		p.Metadata.Annotations[key] = &want
	}
}

func (p *statusPatch) encode() []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic("controller: encode patch: " + err.Error()) // strings and times only
	}
	return b
}
