package status

import (
	"encoding/json"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Reasons of the condition PodNeedUpgrade, and of the Events that sum it up.
const (
	ReasonUpgradeAvailable = "UpgradeAvailable"
	ReasonUpToDate         = "UpToDate"
)

// Mark is what the controller writes on a pod: the condition
// PodNeedUpgrade, which lets the owner of the node upgrade it, and the annotation
// with the target. One without a condition is for a pod that the controller itself
// replaces once the node has the images. The zero value is a pod with neither.
type Mark struct {
	status  corev1.ConditionStatus
	reason  string
	message string
	// Target is the annotation's value, "" for no annotation.
	Target string
}

// Marker computes the marks that a DaemonSet's pods should have.
type Marker struct {
	revision  string
	targetFor func(*corev1.Pod) string
}

// NewMarker returns one for nodes that pull images when their owner asks for it.
func NewMarker(t upgrade.Target) Marker {
	encoded := t.Encode()
	return Marker{revision: t.Revision, targetFor: func(*corev1.Pod) string { return encoded }}
}

// NewPrepullMarker returns one for nodes that pull images as soon as they are asked.
func NewPrepullMarker(t upgrade.Target, now time.Time) Marker {
	target, prepulls := newPrepullTarget(t), upgrade.NewPrepulls(t.Revision)
	return Marker{revision: t.Revision, targetFor: func(pod *corev1.Pod) string { return target.encode(prepulls.From(pod, now)) }}
}

// prepullTarget encodes one target with a time since when nodes are to pull its images. Most
// pods of a DaemonSet share one of a few times.
type prepullTarget struct {
	target  upgrade.Target
	encoded map[int64]string // by Unix time
}

func newPrepullTarget(t upgrade.Target) prepullTarget {
	return prepullTarget{target: t, encoded: map[int64]string{}}
}

func (d prepullTarget) encode(t time.Time) string {
	out, ok := d.encoded[t.Unix()]
	if !ok {
		d.target.Prepull = &metav1.Time{Time: t}
		out = d.target.Encode()
		d.encoded[t.Unix()] = out
	}
	return out
}

// markFor returns the mark that pod should have.
func (m Marker) markFor(pod *corev1.Pod) Mark {
	if !m.needsUpgrade(pod) {
		return Mark{status: corev1.ConditionFalse, reason: ReasonUpToDate, message: upgrade.Message(m.revision)}
	}
	return Mark{
		status:  corev1.ConditionTrue,
		reason:  ReasonUpgradeAvailable,
		message: upgrade.Message(m.revision),
		Target:  m.targetFor(pod),
	}
}

// needsUpgrade reports whether pod runs another revision than the target. A pod
// without a revision counts as old.
func (m Marker) needsUpgrade(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.ControllerRevisionHashLabelKey] != m.revision
}

// MarkOf returns the mark that pod has now.
func MarkOf(pod *corev1.Pod) Mark {
	out := Mark{Target: pod.Annotations[upgrade.TargetAnnotation]}
	if c := upgrade.Condition(pod, upgrade.NeedCondition); c != nil {
		out.status, out.reason, out.message = c.Status, c.Reason, c.Message
	}
	return out
}

// podStatusPatch is a strategic merge patch of a pod's status subresource, which takes
// annotations as well. Conditions are merged by their type: those of the kubelet
// and of the hub stay as they are. The UID makes the apiserver refuse the patch
// when the name belongs to another pod by now.
type podStatusPatch struct {
	Metadata struct {
		UID types.UID `json:"uid"`
		// Annotations are merged by key, and a nil value removes one.
		Annotations map[string]*string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Status struct {
		Conditions []conditionPatch `json:"conditions,omitempty"`
	} `json:"status"`
}

type conditionPatch struct {
	// Directive "delete" removes the condition of this type.
	Directive string                  `json:"$patch,omitempty"`
	Type      corev1.PodConditionType `json:"type"`
	Status    corev1.ConditionStatus  `json:"status,omitempty"`
	Reason    string                  `json:"reason,omitempty"`
	Message   string                  `json:"message,omitempty"`
	// LastTransitionTime is left out, and so left as it is, unless Status flips.
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
}

// PatchMark returns what makes pod's mark want, nil when it is that already. The
// zero mark removes condition and annotation.
func PatchMark(want Mark, pod *corev1.Pod, now time.Time) []byte {
	have := MarkOf(pod)
	if have == want {
		return nil
	}
	var p podStatusPatch
	p.Metadata.UID = pod.UID
	if have.Target != want.Target {
		p.Metadata.Annotations = map[string]*string{upgrade.TargetAnnotation: nil}
		if want.Target != "" {
			p.Metadata.Annotations[upgrade.TargetAnnotation] = &want.Target
		}
	}
	if have.Target = want.Target; have != want {
		p.Status.Conditions = []conditionPatch{needConditionPatch(want, have, now)}
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic("controller: encode patch: " + err.Error()) // strings and a time only
	}
	return b
}

func needConditionPatch(want, have Mark, now time.Time) conditionPatch {
	c := conditionPatch{Type: upgrade.NeedCondition}
	if want.status == "" {
		c.Directive = "delete"
		return c
	}
	c.Status, c.Reason, c.Message = want.status, want.reason, want.message
	if want.status != have.status {
		c.LastTransitionTime = &metav1.Time{Time: now}
	}
	return c
}
