// Package workload is what the strategy OTA needs of a DaemonSet or StatefulSet: which strategy it
// asks for, the selector of its pods, and the revision that they should run. Package daemonset has
// what is of DaemonSets only, and what the revisions of both have in common.
//
// Everything here is a pure function and safe for concurrent use.
package workload

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/controller/daemonset"
)

// Object is a *appsv1.DaemonSet or *appsv1.StatefulSet. The functions of this package take any other
// for one without annotations and pods.
type Object interface {
	metav1.Object
	runtime.Object
}

// Kind is the kind of an Object, as the API spells it.
type Kind string

// The kinds that may opt in.
const (
	DaemonSet   Kind = "DaemonSet"
	StatefulSet Kind = "StatefulSet"
)

// Lower returns k in lower case, as kubectl and log lines have it.
func (k Kind) Lower() string { return strings.ToLower(string(k)) }

// KindOf returns the kind of o, which objects that come from clients do not name.
func KindOf(o Object) Kind {
	switch o.(type) {
	case *appsv1.DaemonSet:
		return DaemonSet
	case *appsv1.StatefulSet:
		return StatefulSet
	}
	return ""
}

// StrategyOf reads what o asks for. A StatefulSet can have the strategy OTA only. When o asks for
// something that cannot be carried out, problem describes what is wrong and what to write instead.
func StrategyOf(o Object) (wanted daemonset.Strategy, problem string) {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return daemonset.StrategyOf(o)
	case *appsv1.StatefulSet:
		return daemonset.ParseStrategy(string(StatefulSet), o.Annotations, string(o.Spec.UpdateStrategy.Type), daemonset.OTA)
	}
	return daemonset.Unmanaged, ""
}

// SelectorOf returns the selector of o's pods, which belongs to o.
func SelectorOf(o Object) *metav1.LabelSelector {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return o.Spec.Selector
	case *appsv1.StatefulSet:
		return o.Spec.Selector
	}
	return nil
}

// MinReadySecondsOf returns for how long a pod of o must be Ready before it is available.
func MinReadySecondsOf(o Object) int32 {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return o.Spec.MinReadySeconds
	case *appsv1.StatefulSet:
		return o.Spec.MinReadySeconds
	}
	return 0
}

// TargetRevision returns the one of revisions that o wants its pods to run, nil while that is not
// known: Kubernetes has yet to see the newest template, or its ControllerRevision has yet to arrive
// here. Both bring an event when they come. daemonset.TargetOf reads it.
//
// A StatefulSet names it in its status, so that an older revision is never taken for the newest.
func TargetRevision(o Object, revisions []*appsv1.ControllerRevision) *appsv1.ControllerRevision {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return daemonset.NewestRevision(o, revisions)
	case *appsv1.StatefulSet:
		if o.Status.ObservedGeneration < o.Generation {
			return nil
		}
		for _, revision := range revisions {
			if revision.Name == o.Status.UpdateRevision && daemonset.Controls(o, revision) {
				return revision
			}
		}
	}
	return nil
}
