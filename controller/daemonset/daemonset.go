// Package daemonset reads what a DaemonSet asks for, and which revision it wants
// its pods to run.
//
// Everything here is a pure function and safe for concurrent use.
package daemonset

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controls reports whether a DaemonSet, or other workload, is object's controller, by UID: one that
// was deleted and made again under the same name does not own what the first one left.
func Controls(workload, object metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	return owner != nil && owner.UID == workload.GetUID()
}

// Condition returns ds's condition of type t, or nil. It points into ds.
func Condition(ds *appsv1.DaemonSet, t appsv1.DaemonSetConditionType) *appsv1.DaemonSetCondition {
	for i := range ds.Status.Conditions {
		if ds.Status.Conditions[i].Type == t {
			return &ds.Status.Conditions[i]
		}
	}
	return nil
}

// Truncate cuts text that others wrote after limit bytes, so that an Event or a condition
// can repeat it, and shows the cut.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "..."
}
