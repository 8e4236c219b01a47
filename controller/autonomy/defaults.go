package autonomy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Defaults are the tolerationSeconds that an apiserver gives pods which have none of their own: its
// --default-not-ready-toleration-seconds and --default-unreachable-toleration-seconds.
type Defaults struct {
	NotReady, Unreachable int64
	// Asked is true if the apiserver itself has said so.
	Asked bool
}

// Same returns defaults of so many seconds for both, as a person gives them.
func Same(seconds int64) Defaults { return Defaults{NotReady: seconds, Unreachable: seconds} }

// DefaultsOf reads them from a pod that had no tolerations when it was created, as the apiserver returned it.
func DefaultsOf(pod *corev1.Pod) (Defaults, error) {
	d := Defaults{Asked: true}
	for taint, seconds := range map[string]*int64{corev1.TaintNodeNotReady: &d.NotReady, corev1.TaintNodeUnreachable: &d.Unreachable} {
		i := only(pod.Spec.Tolerations, taint)
		if i < 0 || pod.Spec.Tolerations[i].TolerationSeconds == nil {
			return Defaults{}, fmt.Errorf("it gives pods no seconds for %s: is its admission plugin DefaultTolerationSeconds off?", taint)
		}
		*seconds = *pod.Spec.Tolerations[i].TolerationSeconds
	}
	return d, nil
}

// of returns the seconds for a taint.
func (d Defaults) of(taint string) int64 {
	if taint == corev1.TaintNodeNotReady {
		return d.NotReady
	}
	return d.Unreachable
}

// String is for the message of a condition.
func (d Defaults) String() string {
	return fmt.Sprintf("%d for not-ready and %d for unreachable", d.NotReady, d.Unreachable)
}
