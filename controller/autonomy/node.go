package autonomy

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Reasons of the condition, and of Events. The condition is True with the first one, and with ReasonInvalid if it was
// before, since pods stay as they are.
const (
	ReasonApplied    = "AutonomyApplied"
	ReasonIncomplete = "AutonomyIncomplete" // pods could not be changed
	ReasonInvalid    = "InvalidAutonomy"
	ReasonReleased   = "Released"
	ReasonRemoved    = "AutonomyRemoved"
	// ReasonNoEffect: there are pods, and none of them stays.
	ReasonNoEffect = "AutonomyWithoutEffect"
)

// ConditionOf returns a Node's condition, or nil.
func ConditionOf(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == api.AutonomyCondition {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// Away reports whether a node counts as away: it is tainted not-ready or unreachable. The taint that evicts follows
// the one that keeps new pods off within a second, so either counts.
func Away(n *corev1.Node) bool {
	for i := range n.Spec.Taints {
		if originals[n.Spec.Taints[i].Key] != "" {
			return true
		}
	}
	return false
}

// AwaySince returns since when a node has had a taint that evicts; false if it has none, or one without a time.
func AwaySince(n *corev1.Node) (since time.Time, ok bool) {
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if originals[t.Key] != "" && t.Effect == corev1.TaintEffectNoExecute && t.TimeAdded != nil && (!ok || t.TimeAdded.Time.Before(since)) {
			since, ok = t.TimeAdded.Time, true
		}
	}
	return since, ok
}

// NeedsPods reports whether the pods of a node with this setting are to be looked at: it is autonomous, or its pods may be
// yet to be restored. Records on pods of another node are OpenYurt's, which leaves them there, or forged.
func NeedsPods(n *corev1.Node, s Setting) bool {
	c := ConditionOf(n)
	return s.On || c != nil && c.Reason != ReasonRemoved
}

// ConditionFor returns the condition of a node with this setting, of which an annotation could not be read (invalid) or
// pods could not be changed (failed). It is nil if the node needs none: it was never autonomous.
func ConditionFor(n *corev1.Node, s Setting, invalid, failed error) *corev1.NodeCondition {
	c := &corev1.NodeCondition{Type: api.AutonomyCondition, Status: corev1.ConditionFalse}
	before := ConditionOf(n)
	switch {
	case failed != nil:
		c.Reason, c.Message = ReasonIncomplete, failed.Error()+"; it is tried again"
	case invalid != nil:
		c.Reason, c.Message = ReasonInvalid, invalid.Error()+"; pods stay as they are"
		if before != nil {
			c.Status = before.Status
		}
	case s.Released():
		c.Reason, c.Message = ReasonReleased, "the node was given up: its pods are evicted now, until it is back"
	case s.On:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, ReasonApplied, "pods stay while this node is away, "+s.String()
	case before == nil:
		return nil
	default:
		c.Reason, c.Message = ReasonRemoved, "pods are evicted when this node is away for longer than they tolerate"
	}
	return c
}

// WithoutEffect returns the condition of a node with pods of which none stays, in place of one with ReasonApplied.
func (f Fleet) WithoutEffect() *corev1.NodeCondition {
	message := "no pod stays while this node is away: only pods with the apiserver's default tolerationSeconds do, " + f.Defaults.String()
	if f.Defaults.Asked {
		message += ", and all pods here bring others of their own"
	} else {
		message += " according to the controller's --default-toleration-seconds. If the apiserver gives pods others, set that," +
			" or apply deploy/admission, with which the controller asks the apiserver"
	}
	return &corev1.NodeCondition{Type: api.AutonomyCondition, Status: corev1.ConditionFalse, Reason: ReasonNoEffect, Message: message}
}

// PatchFor returns a strategic merge patch of a Node's status that sets the condition, if that is not nil and another one than
// before, and removes the annotation of a release that is over. It is nil if there is nothing to do. It is for this version
// of the Node only.
func PatchFor(n *corev1.Node, c *corev1.NodeCondition, now metav1.Time) (patch []byte, changed bool, err error) {
	meta := map[string]any{"uid": n.UID, "resourceVersion": n.ResourceVersion}
	whole := map[string]any{"metadata": meta}
	_, released := n.Annotations[api.ReleasedAnnotation]
	over := released && !Away(n)
	if over {
		meta["annotations"] = map[string]any{api.ReleasedAnnotation: nil}
	}
	before := ConditionOf(n)
	if c != nil && (before == nil || !sameCondition(before, c)) {
		changed = true
		c.LastHeartbeatTime, c.LastTransitionTime = now, now
		if before != nil && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
		whole["status"] = map[string]any{"conditions": []*corev1.NodeCondition{c}}
	}
	if !over && !changed {
		return nil, false, nil
	}
	patch, err = json.Marshal(whole)
	return patch, changed, err
}

// sameCondition leaves out why pods could not be changed, which may be another one at each try.
func sameCondition(a, b *corev1.NodeCondition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && (a.Message == b.Message || a.Reason == ReasonIncomplete)
}
