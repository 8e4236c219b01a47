package derived

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/patch"
)

// checkScope returns patch.ErrUnsupported for what a node must not update offline.
func checkScope(k key, subresource string) error {
	resource := k.Resource
	if subresource != "" {
		resource += "/" + subresource
	}
	switch {
	case k.Group == corev1.GroupName && (resource == "nodes/status" || resource == "pods/status"),
		k.Group == coordinationv1.GroupName && resource == "leases":
		return nil
	}
	return fmt.Errorf("update %s %s: %w", resource, k.Name, patch.ErrUnsupported)
}

// keepSpec sets on next what an update of the status does not change, like the strategies of the
// apiserver's registry. A node's metadata may change: with the status, a kubelet also sets the
// labels and annotations that it owns.
func keepSpec(next, current runtime.Object) {
	switch to := next.(type) {
	case *corev1.Node:
		if from, ok := current.(*corev1.Node); ok {
			to.Spec = from.Spec
		}
	case *corev1.Pod:
		if from, ok := current.(*corev1.Pod); ok {
			to.Spec = from.Spec
			to.OwnerReferences = from.OwnerReferences
			if to.Status.QOSClass == "" { // the apiserver has set it, once
				to.Status.QOSClass = from.Status.QOSClass
			}
		}
	}
}

// copyStatus sets on to what other users than the node read of an update. Besides the status, these are a Node's
// annotations: some agents tell others there how to reach the node.
func copyStatus(to, from runtime.Object) {
	switch to := to.(type) {
	case *corev1.Pod:
		if from, ok := from.(*corev1.Pod); ok {
			to.Status = from.Status
		}
	case *corev1.Node:
		if from, ok := from.(*corev1.Node); ok {
			to.Status = from.Status
			to.Annotations = from.Annotations
		}
	}
}
