package status

import (
	"encoding/json"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// ownedTypes are the types of conditions that the controller sets on a DaemonSet, and
// rolloutTypes those that only AdvancedRollingUpdate has. Those of others are left
// alone.
var (
	ownedTypes = [...]appsv1.DaemonSetConditionType{
		rollout.CompleteCondition, rollout.ProgressingCondition, rollout.HaltedCondition, rollout.InvalidCondition,
	}
	rolloutTypes = [...]appsv1.DaemonSetConditionType{
		rollout.CompleteCondition, rollout.ProgressingCondition, rollout.HaltedCondition,
	}
)

// Conditions are those that a DaemonSet is to have: nil is to be removed, and what
// is absent stays as it is.
type Conditions map[appsv1.DaemonSetConditionType]*appsv1.DaemonSetCondition

// Set adds these conditions.
func (c Conditions) Set(all ...appsv1.DaemonSetCondition) {
	for i := range all {
		c[all[i].Type] = &all[i]
	}
}

// ForRollout are the conditions of a DaemonSet that is rolled out.
func ForRollout(ds *appsv1.DaemonSet, all ...appsv1.DaemonSetCondition) Conditions {
	out := Accepted(ds)
	out.Set(all...)
	return out
}

// Accepted returns the condition that the annotations are valid, if they once were not.
func Accepted(ds *appsv1.DaemonSet) Conditions {
	out := Conditions{}
	if Find(ds, rollout.InvalidCondition) != nil {
		out.Set(rollout.Invalid(""))
	}
	return out
}

// ForInvalid are the conditions of a DaemonSet that asks for something wrong. If it was
// rolled out, that ends here.
func ForInvalid(ds *appsv1.DaemonSet, problem string) Conditions {
	out := Conditions{}
	out.Set(rollout.Invalid(problem))
	if wanted, _ := daemonset.StrategyOf(ds); wanted == daemonset.AdvancedRollingUpdate || Find(ds, rollout.CompleteCondition) != nil {
		out.Set(rollout.Stuck(problem)...)
	}
	return out
}

// RemoveOwned adds to c that every condition of the controller is to be removed.
func (c Conditions) RemoveOwned() Conditions { return removing(c, ownedTypes[:]...) }

// RemoveRollout adds to c that the conditions of rollouts are to be removed.
func (c Conditions) RemoveRollout() Conditions { return removing(c, rolloutTypes[:]...) }

// removing adds to c that conditions of these types are to be removed.
func removing(c Conditions, types ...appsv1.DaemonSetConditionType) Conditions {
	for _, t := range types {
		c[t] = nil
	}
	return c
}

// Find returns ds's condition of type t, or nil. It points into ds.
func Find(ds *appsv1.DaemonSet, t appsv1.DaemonSetConditionType) *appsv1.DaemonSetCondition {
	for i := range ds.Status.Conditions {
		if ds.Status.Conditions[i].Type == t {
			return &ds.Status.Conditions[i]
		}
	}
	return nil
}

// OwnedConditions returns the conditions on ds that the controller sets.
func OwnedConditions(ds *appsv1.DaemonSet) []appsv1.DaemonSetCondition {
	var out []appsv1.DaemonSetCondition
	for _, t := range ownedTypes {
		if c := Find(ds, t); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// HasOwned reports whether ds has any condition that the controller sets.
func HasOwned(ds *appsv1.DaemonSet) bool {
	for _, t := range ownedTypes {
		if Find(ds, t) != nil {
			return true
		}
	}
	return false
}

// daemonSetStatusPatch is a strategic merge patch of a DaemonSet's status, which merges
// conditions by their type.
type daemonSetStatusPatch struct {
	Metadata struct {
		UID types.UID `json:"uid"`
	} `json:"metadata"`
	Status struct {
		Conditions []conditionPatch `json:"conditions"`
	} `json:"status"`
}

// PatchConditions returns what makes ds's conditions want, nil when they are that
// already. It is urgent when more than a message changes.
func PatchConditions(ds *appsv1.DaemonSet, want Conditions, now time.Time) (patch []byte, urgent bool) {
	var p daemonSetStatusPatch
	p.Metadata.UID = ds.UID
	for _, t := range ownedTypes {
		w, said := want[t]
		have := Find(ds, t)
		switch {
		case !said, w == nil && have == nil:
			continue
		case w == nil:
			p.Status.Conditions = append(p.Status.Conditions, conditionPatch{Directive: "delete", Type: corev1.PodConditionType(t)})
			urgent = true
			continue
		case have != nil && have.Status == w.Status && have.Reason == w.Reason && have.Message == w.Message:
			continue
		}
		c := conditionPatch{Type: corev1.PodConditionType(t), Status: w.Status, Reason: w.Reason, Message: w.Message}
		if have == nil || have.Status != w.Status {
			c.LastTransitionTime = &metav1.Time{Time: now}
		}
		urgent = urgent || have == nil || have.Status != w.Status || have.Reason != w.Reason
		p.Status.Conditions = append(p.Status.Conditions, c)
	}
	if p.Status.Conditions == nil {
		return nil, false
	}
	patch, err := json.Marshal(p)
	if err != nil {
		panic("controller: encode patch: " + err.Error()) // strings and times only
	}
	return patch, urgent
}
