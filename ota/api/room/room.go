// Package room decides whether a node has room for the next pod in place of an old one: for the node itself, which knows its
// pods, and for the controller, which also sees the pods that wait for a node. Everything in it is a pure function.
package room

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/resource"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/placement"
)

// Obstacle returns why node has no room for a pod of target in place of old: what that requests, its ports, or a place among
// the pods is not free without old. It returns "" if there is room. pods are the node's, old among them. waiting are pods
// that wait for a node, any node; none if they are not known. Whether volumes, other pods or a topology keep one of those from
// this node is not looked at.
//
// Pods of a lower priority count as room, since the scheduler evicts them. A pod of a DaemonSet or
// StatefulSet that ends may be one that was upgraded a moment ago, and counts as its successor. Nothing is
// looked at if the new version has another priority class: nobody here knows which pods would be evicted for
// it. One whose template names none gets the cluster's default at admission, as the old one most likely has.
func Obstacle(node *corev1.Node, old *corev1.Pod, target api.Target, pods, waiting []corev1.Pod) string {
	if target.PriorityClassName != "" && target.PriorityClassName != old.Spec.PriorityClassName {
		return ""
	}
	next := demand{requests: target.Requests, ports: target.HostPorts}
	without := newRoom(node, old, pods)
	if lack := without.lack(next); lack != "" {
		return lack
	}
	if w := without.firstToCome(node, old, waiting, next); w != nil {
		return fmt.Sprintf("pod %s/%s, which waits for a node, may take the room on node %s that the new version needs", w.Namespace, w.Name, node.Name)
	}
	return ""
}

// demand is what a pod needs of a node.
type demand struct {
	requests corev1.ResourceList
	ports    []api.HostPort
}

func demandOf(pod *corev1.Pod) demand { return demand{keeps(pod), api.HostPortsOf(&pod.Spec)} }

// room is what is free on a node.
type room struct {
	node    *corev1.Node
	free    corev1.ResourceList
	places  quantity.Quantity // for pods, if limited
	limited bool
	taken   []takenPort
}

type takenPort struct {
	api.HostPort
	by types.NamespacedName
}

// newRoom returns what is free of node for a pod like old, without old itself.
func newRoom(node *corev1.Node, old *corev1.Pod, pods []corev1.Pod) room {
	r := room{node: node, free: node.Status.Allocatable.DeepCopy()}
	r.places, r.limited = r.free[corev1.ResourcePods]
	if r.free == nil {
		r.free = corev1.ResourceList{}
	}
	for i := range pods {
		p := &pods[i]
		switch {
		case p.UID == old.UID, p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed,
			p.DeletionTimestamp != nil && !comesBack(p),
			evicts(old) && priority(p) < priority(old):
			continue
		}
		r.take(p)
	}
	return r
}

var onePod = *quantity.NewQuantity(1, quantity.DecimalSI)

func (r *room) take(pod *corev1.Pod) {
	d := demandOf(pod)
	r.places.Sub(onePod)
	for name, used := range d.requests {
		left := r.free[name]
		left.Sub(used)
		r.free[name] = left
	}
	for _, port := range d.ports {
		r.taken = append(r.taken, takenPort{port, types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}})
	}
}

// lack returns what is missing for the new version, "" if nothing is.
func (r *room) lack(d demand) string {
	for _, port := range d.ports {
		for _, taken := range r.taken {
			if port.Conflicts(taken.HostPort) {
				return fmt.Sprintf("pod %s has port %d of node %s, which the new version wants", taken.by, port.Port, r.node.Name)
			}
		}
	}
	if r.limited && r.places.Sign() <= 0 {
		total := r.node.Status.Allocatable[corev1.ResourcePods]
		return fmt.Sprintf("node %s has all of its %s pods", r.node.Name, total.String())
	}
	for _, name := range slices.Sorted(maps.Keys(d.requests)) {
		want, left, total := d.requests[name], r.free[name], r.node.Status.Allocatable[name]
		if want.Cmp(left) > 0 && !want.IsZero() {
			return fmt.Sprintf("the new version requests %s of %s, and node %s has %s of %s for it", want.String(), name, r.node.Name, left.String(), total.String())
		}
	}
	return ""
}

func (r *room) fits(d demand) bool { return r.lack(d) == "" }

// firstToCome returns a pod of waiting that may get the room that old leaves before the next pod is created, if there is
// not enough for both; nil if there is none. A pod that would have room already waits for something else, and one that the
// scheduler has not looked at yet is about to get a node.
func (r *room) firstToCome(node *corev1.Node, old *corev1.Pod, waiting []corev1.Pod, next demand) *corev1.Pod {
	var queue []*corev1.Pod
	for i := range waiting {
		p := &waiting[i]
		if evicts(old) && priority(p) < priority(old) || p.DeletionTimestamp != nil || !placement.CanTake(node, p) {
			continue
		}
		scheduled := api.Condition(p, corev1.PodScheduled)
		switch {
		case p.Status.NominatedNodeName == node.Name: // others end here for it
			if r.take(p); !r.fits(next) {
				return p
			}
		case p.Status.NominatedNodeName == "" && scheduled != nil && scheduled.Reason == corev1.PodReasonUnschedulable:
			queue = append(queue, p)
		}
	}
	slices.SortFunc(queue, func(a, b *corev1.Pod) int { // the scheduler's PrioritySort has the time in its queue, which nobody shows
		return cmp.Or(cmp.Compare(priority(b), priority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, p := range queue {
		now := room{node: node, free: r.free.DeepCopy(), places: r.places.DeepCopy(), limited: r.limited, taken: slices.Clone(r.taken)}
		now.take(old)
		if d := demandOf(p); now.fits(d) || !r.fits(d) {
			continue
		}
		if r.take(p); !r.fits(next) {
			return p
		}
	}
	return nil
}

// evicts reports whether the next pod in place of old has others evicted for it.
func evicts(old *corev1.Pod) bool {
	return old.Spec.PreemptionPolicy == nil || *old.Spec.PreemptionPolicy != corev1.PreemptNever
}

// comesBack reports whether something makes a pod anew that ends, perhaps on this node: also a DaemonSet or StatefulSet of
// another API group.
func comesBack(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "StatefulSet")
}

// keeps returns what is not free because of a pod: what it requests or, if it ends and that is more,
// what its new version does. It counts as the scheduler does: a pod that is resized in place with what it has until it
// has what it wants, and with that alone if it cannot have it.
func keeps(p *corev1.Pod) corev1.ResourceList {
	out := resource.PodRequests(p, resource.PodResourcesOptions{UseStatusResources: true})
	if target, ok := api.NextOf(p); ok && p.DeletionTimestamp != nil {
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
