package ota

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/resource"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// checkUpgrade returns nil if a pod of this node may be upgraded now, and otherwise the failure
// of the first check. Clients depend on the order of the checks.
func (s *server) checkUpgrade(pod *corev1.Pod) error {
	return check(pod, as(Gone, checkNotDeleting), as(Void, checkNeed), as(NoImages, s.checkImage), as(Void, checkOwner), checkPlacement)
}

// check returns the first error of the checks.
func check(pod *corev1.Pod, checks ...func(*corev1.Pod) error) error {
	for _, c := range checks {
		if err := c(pod); err != nil {
			return err
		}
	}
	return nil
}

func checkNotDeleting(pod *corev1.Pod) error {
	if pod.DeletionTimestamp == nil {
		return nil
	}
	return failf(http.StatusForbidden, "pod %s/%s is being deleted already: wait for its successor, GET /pods shows it", pod.Namespace, pod.Name)
}

func checkNeed(pod *corev1.Pod) error {
	need := upgrade.Condition(pod, upgrade.NeedCondition)
	switch {
	case need == nil:
		return failf(http.StatusForbidden,
			"pod %s/%s has no condition %s: it is not known to need an upgrade; if its DaemonSet or StatefulSet was just changed, wait for edgehub-controller to mark the pod, GET /pods shows it",
			pod.Namespace, pod.Name, upgrade.NeedCondition)
	case need.Status != corev1.ConditionTrue:
		return failf(http.StatusForbidden,
			"pod %s/%s needs no upgrade: its condition %s is %s (%s); there is nothing to do",
			pod.Namespace, pod.Name, upgrade.NeedCondition, need.Status, need.Message)
	}
	return nil
}

// checkImage fails while a pre-pull of the pod's images is not ready. It passes a pod without
// the condition, if it has no pre-pull, and a pod whose condition is left from a time when this
// hub still pulled images. It relies on checkNeed.
func (s *server) checkImage(pod *corev1.Pod) error {
	image := upgrade.Condition(pod, upgrade.ImageCondition)
	want := upgrade.RevisionOf(upgrade.Condition(pod, upgrade.NeedCondition))
	pull, pulls := s.pullOf(pod, want)
	switch { // the condition shows a pre-pull later, without the cloud much later
	case pull.State == nodeapi.Ready, image != nil && s.ImagePulls == nil && strings.HasPrefix(image.Reason, upgrade.ImageReasonPrefix):
		return nil
	case image == nil && pulls:
		return failf(http.StatusForbidden,
			"the images for pod %s/%s are not on this node yet: their pre-pull is %s; wait until it is Ready, which GET …/imagepull shows, or DELETE …/imagepull to upgrade without",
			pod.Namespace, pod.Name, pull.State)
	case image == nil:
		return nil
	}
	got := upgrade.RevisionOf(image)
	switch {
	case image.Reason == upgrade.ReasonTargetChanged:
		return failf(http.StatusForbidden,
			"the images that were pulled for pod %s/%s are of another revision than the upgrade would be to by now: POST …/imagepull pulls those of the new one, DELETE …/imagepull lets the upgrade go without",
			pod.Namespace, pod.Name)
	case image.Status != corev1.ConditionTrue:
		return failf(http.StatusForbidden,
			"the images for pod %s/%s are not on this node yet: its condition %s is %s (%s %s); wait until it is True, which GET /pods shows, or DELETE …/imagepull to upgrade without",
			pod.Namespace, pod.Name, upgrade.ImageCondition, image.Status, image.Reason, image.Message)
	case got != want:
		return failf(http.StatusForbidden,
			"the images on this node for pod %s/%s are of revision %q, the upgrade is to revision %q: POST …/imagepull to pull those, and wait until condition %s names that revision, or DELETE …/imagepull to upgrade without",
			pod.Namespace, pod.Name, got, want, upgrade.ImageCondition)
	}
	return nil
}

// pullOf returns this hub's pre-pull of a revision of pod, and false if there is none.
func (s *server) pullOf(pod *corev1.Pod, revision string) (nodeapi.ImagePull, bool) {
	if s.ImagePulls == nil {
		return nodeapi.ImagePull{}, false
	}
	state, ok := s.ImagePulls.State(nameOf(pod))
	if !ok || state.UID != string(pod.UID) || state.Revision != revision {
		return nodeapi.ImagePull{}, false
	}
	return state, true
}

// checkOwner fails unless a DaemonSet or StatefulSet will replace the pod. A DaemonSet does so on
// this node, and a StatefulSet wherever the scheduler places the pod of the same name.
func checkOwner(pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return failf(http.StatusBadRequest,
			"pod %s/%s has no controlling owner: nothing would replace it; only pods of a DaemonSet or StatefulSet can be upgraded here",
			pod.Namespace, pod.Name)
	}
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil || group.Group != "apps" || owner.Kind != "DaemonSet" && owner.Kind != "StatefulSet" {
		return failf(http.StatusBadRequest,
			"pod %s/%s belongs to %s %q of %s: only pods of a DaemonSet or StatefulSet of apps/v1 can be upgraded here",
			pod.Namespace, pod.Name, owner.Kind, owner.Name, owner.APIVersion)
	}
	return nil
}

// targetOf returns what the upgrade of pod would be to, if the controller has written that.
func targetOf(pod *corev1.Pod) (upgrade.Target, bool) {
	target, ok, err := upgrade.TargetOf(pod)
	need := upgrade.Condition(pod, upgrade.NeedCondition)
	return target, ok && err == nil && need != nil && target.Revision == upgrade.RevisionOf(need)
}

// checkPlacement fails if Kubernetes would place no pod of the new version on this node, so that
// the node would lose the app.
func checkPlacement(pod *corev1.Pod) error {
	target, ok := targetOf(pod)
	if !ok || target.Blocked == "" {
		return nil
	}
	return wouldNotComeBack(pod, target.Blocked)
}

func wouldNotComeBack(pod *corev1.Pod, obstacle string) error {
	return failf(http.StatusForbidden,
		"pod %s/%s would not come back: %s; it runs on as it is, until the cluster's admin changes the node or the DaemonSet",
		pod.Namespace, pod.Name, obstacle)
}

// checkRoom fails if what the new version of pod requests, its ports, or a place among the pods is not free on node
// without it. all are the node's pods.
//
// Pods of a lower priority count as room, since the scheduler evicts them. A pod of a DaemonSet or
// StatefulSet that ends may be one that was upgraded a moment ago, and counts as its successor. Nothing is
// checked if the new version has another priority class: nobody here knows which pods would be evicted for
// it. One whose template names none gets the cluster's default at admission, as the old one most likely has.
func checkRoom(node *corev1.Node, pod *corev1.Pod, all []corev1.Pod) error {
	target, _ := targetOf(pod)
	if target.PriorityClassName != "" && target.PriorityClassName != pod.Spec.PriorityClassName {
		return nil
	}
	evicts := pod.Spec.PreemptionPolicy == nil || *pod.Spec.PreemptionPolicy != corev1.PreemptNever
	free := node.Status.Allocatable.DeepCopy()
	places, limited := free[corev1.ResourcePods]
	for i := range all {
		p := &all[i]
		switch {
		case p.UID == pod.UID, p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed,
			p.DeletionTimestamp != nil && checkOwner(p) != nil,
			evicts && priority(p) < priority(pod):
			continue
		}
		places.Sub(onePod)
		for name, used := range keeps(p) {
			left := free[name]
			left.Sub(used)
			free[name] = left
		}
		for _, port := range target.HostPorts {
			if slices.ContainsFunc(upgrade.HostPortsOf(&p.Spec), port.Conflicts) {
				return wouldNotComeBack(pod, fmt.Sprintf("pod %s/%s has port %d of node %s, which the new version wants", p.Namespace, p.Name, port.Port, node.Name))
			}
		}
	}
	if limited && places.Sign() <= 0 {
		total := node.Status.Allocatable[corev1.ResourcePods]
		return wouldNotComeBack(pod, fmt.Sprintf("node %s has all of its %s pods", node.Name, total.String()))
	}
	for _, name := range slices.Sorted(maps.Keys(target.Requests)) {
		want, left, total := target.Requests[name], free[name], node.Status.Allocatable[name]
		if want.Cmp(left) > 0 && !want.IsZero() {
			return failf(http.StatusForbidden,
				"pod %s/%s would not come back: the new version requests %s of %s, and node %s has %s of %s for it; it runs on as it is, until there is room, or the DaemonSet requests less",
				pod.Namespace, pod.Name, want.String(), name, node.Name, left.String(), total.String())
		}
	}
	return nil
}

var onePod = *quantity.NewQuantity(1, quantity.DecimalSI)

// keeps returns what is not free because of a pod: what it requests or, if it ends and that is more,
// what its new version does. It counts as the scheduler does: a pod that is resized in place with what it has until it
// has what it wants, and with that alone if it cannot have it.
func keeps(p *corev1.Pod) corev1.ResourceList {
	out := resource.PodRequests(p, resource.PodResourcesOptions{UseStatusResources: true})
	if target, ok := targetOf(p); ok && p.DeletionTimestamp != nil {
		for name, q := range target.Requests {
			if have := out[name]; q.Cmp(have) > 0 {
				out[name] = q
			}
		}
	}
	return out
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
