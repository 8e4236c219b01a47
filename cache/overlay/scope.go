package overlay

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/patch"
)

// scope puts back into next what an update must not change, as the strategies of the
// apiserver's registry do.
type scope func(next, current runtime.Object)

// scopeOf returns what a node may update while the cloud is away.
func scopeOf(key Key, subresource string) (scope, error) {
	switch {
	case key.Group == corev1.GroupName && key.Resource == "nodes" && subresource == "status":
		return nodeStatus, nil
	case key.Group == corev1.GroupName && key.Resource == "pods" && subresource == "status":
		return podStatus, nil
	case key.Group == coordinationv1.GroupName && key.Resource == "leases" && subresource == "":
		return anything, nil
	}
	resource := key.Resource
	if subresource != "" {
		resource += "/" + subresource
	}
	return nil, fmt.Errorf("update %s %s: %w", resource, key.Name, patch.ErrUnsupported)
}

// nodeStatus lets metadata through: by the status a kubelet also sets the labels and
// annotations that it owns.
func nodeStatus(next, current runtime.Object) {
	to, ok := next.(*corev1.Node)
	from, same := current.(*corev1.Node)
	if ok && same {
		to.Spec = from.Spec
	}
}

func podStatus(next, current runtime.Object) {
	to, ok := next.(*corev1.Pod)
	from, same := current.(*corev1.Pod)
	if !ok || !same {
		return
	}
	to.Spec = from.Spec
	to.OwnerReferences = from.OwnerReferences
	if to.Status.QOSClass == "" { // the apiserver has set it, once
		to.Status.QOSClass = from.Status.QOSClass
	}
}

func anything(_, _ runtime.Object) {}
