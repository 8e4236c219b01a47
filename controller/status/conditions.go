// Package status computes what the controller writes to the status of DaemonSets and pods:
// the conditions that a DaemonSet should have, the mark that a pod should have, and the
// patches from the present state to these. A mark is the condition PodNeedUpgrade together
// with the annotation that names the target; see package ota/api.
//
// Everything here is a pure function and safe for concurrent use. Package podclient sends
// the patches of pods, and the controller those of DaemonSets.
package status

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// ownedTypes are the types of conditions that the controller sets on a DaemonSet: with OTA,
// CompleteCondition and InvalidCondition.
var ownedTypes = [...]appsv1.DaemonSetConditionType{
	api.CompleteCondition, api.ProgressingCondition, api.HaltedCondition, api.InvalidCondition,
}

// Conditions are those that a DaemonSet is to have. A nil condition is to be removed, and
// the types that are missing stay as they are.
type Conditions map[appsv1.DaemonSetConditionType]*appsv1.DaemonSetCondition

// Set adds these conditions.
func (c Conditions) Set(all ...appsv1.DaemonSetCondition) {
	for i := range all {
		c[all[i].Type] = &all[i]
	}
}

// RemoveRollout adds to c that the conditions of rollouts are to be removed.
func (c Conditions) RemoveRollout() Conditions {
	for _, t := range ownedTypes {
		if t != api.InvalidCondition {
			c[t] = nil
		}
	}
	return c
}

// ForRollout are the conditions of a DaemonSet that is rolled out.
func ForRollout(ds *appsv1.DaemonSet, all ...appsv1.DaemonSetCondition) Conditions {
	out := Accepted(ds)
	out.Set(all...)
	return out
}

// ForOTA are the conditions of a DaemonSet with the strategy OTA.
func ForOTA(ds *appsv1.DaemonSet, complete appsv1.DaemonSetCondition) Conditions {
	out := Accepted(ds).RemoveRollout()
	out.Set(complete)
	return out
}

// Accepted returns the condition that the annotations are valid, if they once were not.
func Accepted(ds *appsv1.DaemonSet) Conditions {
	out := Conditions{}
	if daemonset.Condition(ds, api.InvalidCondition) != nil {
		out.Set(rollout.Invalid(""))
	}
	return out
}

// ForInvalid are the conditions of a DaemonSet whose annotations are invalid. They stop its
// rollout, if it has one.
func ForInvalid(ds *appsv1.DaemonSet, problem string) Conditions {
	out := Conditions{}
	out.Set(rollout.Invalid(problem))
	wanted, _ := daemonset.StrategyOf(ds)
	for _, c := range rollout.Stuck(problem) {
		if wanted == daemonset.AdvancedRollingUpdate || daemonset.Condition(ds, c.Type) != nil {
			out.Set(c)
		}
	}
	return out
}

// OwnedConditions returns the conditions on ds that the controller sets.
func OwnedConditions(ds *appsv1.DaemonSet) []appsv1.DaemonSetCondition {
	var out []appsv1.DaemonSetCondition
	for _, t := range ownedTypes {
		if c := daemonset.Condition(ds, t); c != nil {
			out = append(out, *c)
		}
	}
	return out
}

// PatchWorkload returns the patch that gives o, a DaemonSet or StatefulSet, the conditions want and this report, and how
// long it may wait for the last one: not at all if more than numbers and names change. The patch is nil if o has all of it.
// A nil report leaves the annotation as it is, one without a Reason removes it.
func PatchWorkload(o metav1.Object, want Conditions, report *rollout.Report, now time.Time) (patch []byte, wait time.Duration) {
	var p statusPatch
	p.Metadata.UID = o.GetUID()
	wait = reportInterval
	if ds, ok := o.(*appsv1.DaemonSet); ok {
		wait = p.setConditions(ds, want, now)
	}
	if report != nil {
		value := ""
		have, current := rollout.ReportOn(o)
		if report.Reason != "" {
			value = report.Encode()
		}
		p.annotate(api.ReportAnnotation, o.GetAnnotations()[api.ReportAnnotation], value)
		if !current || have.Reason != report.Reason {
			wait = 0
		}
	}
	if p.Status.Conditions == nil && p.Metadata.Annotations == nil {
		return nil, 0
	}
	return p.encode(), wait
}

const (
	// messageInterval and reportInterval are the least time between patches that change only messages of conditions,
	// or only the report. Each patch makes Kubernetes reconcile the whole workload.
	messageInterval = time.Second
	reportInterval  = 5 * time.Second
)

// setConditions adds those of want that differ from ds's, and returns how long they may wait.
func (p *statusPatch) setConditions(ds *appsv1.DaemonSet, want Conditions, now time.Time) (wait time.Duration) {
	var none appsv1.DaemonSetCondition
	wait = reportInterval
	for _, t := range ownedTypes {
		c, mentioned := want[t]
		if !mentioned {
			continue
		}
		wanted, have := cmp.Or(c, &none), cmp.Or(daemonset.Condition(ds, t), &none)
		sameReason := have.Status == wanted.Status && have.Reason == wanted.Reason
		if sameReason && have.Message == wanted.Message {
			continue
		}
		wait = min(wait, messageInterval)
		if !sameReason {
			wait = 0
		}
		p.Status.Conditions = append(p.Status.Conditions,
			patchCondition(string(t), have.Status, wanted.Status, wanted.Reason, wanted.Message, now))
	}
	return wait
}
