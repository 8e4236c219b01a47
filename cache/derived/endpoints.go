package derived

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// nodePods are the pods of a node in one namespace, with the status that kubelet reported last.
type nodePods struct {
	List []*corev1.Pod
	// Complete means that there are no others. Otherwise an endpoint of another pod stays as it
	// was read.
	Complete bool
	// Owners are the UIDs of the controlling owners of pods, those that are gone among them, by the
	// pods' UIDs. Of others it is not known.
	Owners map[types.UID]types.UID
}

// followPods returns the slice as the node's pods in its namespace make it, and whether that differs
// from what it was: a Service leads to the pods of the node that are ready, with the addresses that they have now. Endpoints on
// other nodes stay as they were read last: nobody here knows better. It is a pure function.
func followPods(slice *discoveryv1.EndpointSlice, node string, pods nodePods) (*discoveryv1.EndpointSlice, bool) {
	var endpoints []discoveryv1.Endpoint
	changed := false
	for _, e := range slice.Endpoints {
		if !isLocal(&e, node) {
			endpoints = append(endpoints, e)
			continue
		}
		p := find(e.TargetRef, pods)
		if p == nil && !pods.Complete {
			endpoints = append(endpoints, e)
			continue
		}
		now, keep := follow(&e, slice.AddressType, p)
		changed = changed || !keep || !same(&e, &now)
		if keep {
			endpoints = append(endpoints, now)
		}
	}
	if !changed {
		return slice, false
	}
	out := slice.DeepCopy()
	out.Endpoints = endpoints
	return out, true
}

// isLocal reports whether an endpoint is a pod of the node. Others may be written by hand.
func isLocal(e *discoveryv1.Endpoint, node string) bool {
	return e.NodeName != nil && *e.NodeName == node && e.TargetRef != nil && e.TargetRef.Kind == "Pod"
}

// find returns the pod behind an endpoint: the same one or, since a DaemonSet's or StatefulSet's
// pod may have come back under another UID, the one that took its place. nil: there is none.
func find(ref *corev1.ObjectReference, pods nodePods) *corev1.Pod {
	var successor *corev1.Pod
	before, known := pods.Owners[ref.UID]
	for _, p := range pods.List {
		if p.UID == ref.UID {
			return p
		}
		if isSuccessor(p, ref.Name) && (!known || ownerOf(p) == before) && (successor == nil || successor.CreationTimestamp.Before(&p.CreationTimestamp)) {
			successor = p
		}
	}
	return successor
}

// ownerOf returns the UID of a pod's controlling owner, or "".
func ownerOf(p *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOfNoCopy(p); owner != nil {
		return owner.UID
	}
	return ""
}

// generated is how many characters the DaemonSet controller lets an apiserver add to a pod's name.
const generated = 5

// isSuccessor reports whether a pod takes the place of one with this name, if they have the same
// owner: it makes one such pod for a node, or for a name.
func isSuccessor(p *corev1.Pod, name string) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil {
		return false
	}
	switch owner.Kind {
	case "StatefulSet":
		return p.Name == name
	case "DaemonSet":
		suffix, ok := strings.CutPrefix(name, owner.Name+"-")
		return ok && len(suffix) == generated && !strings.Contains(suffix, "-")
	}
	return false
}

// follow returns an endpoint as its pod makes it. keep is false if the pod is gone, has ended, or
// has no address of this type.
func follow(e *discoveryv1.Endpoint, addressType discoveryv1.AddressType, p *corev1.Pod) (now discoveryv1.Endpoint, keep bool) {
	if p == nil || hasEnded(p) {
		return now, false
	}
	address := podAddress(p, addressType)
	if address == "" {
		return now, false
	}
	now = *e.DeepCopy()
	now.Addresses = []string{address}
	now.TargetRef.Name, now.TargetRef.UID = p.Name, p.UID
	isReady := hasReadyCondition(p)
	// The slice may show a deletion before the pod does; nothing takes it back.
	terminating := p.DeletionTimestamp != nil || isSet(e.Conditions.Terminating) && e.TargetRef.UID == p.UID
	// A Service with publishNotReadyAddresses has endpoints that are ready though they do not
	// serve; of one that serves, nobody can tell.
	published := isTrue(e.Conditions.Ready) && e.Conditions.Serving != nil && !*e.Conditions.Serving
	ready := published || isReady && !terminating
	now.Conditions.Ready, now.Conditions.Serving, now.Conditions.Terminating = &ready, &isReady, &terminating
	return now, true
}

func podAddress(p *corev1.Pod, addressType discoveryv1.AddressType) string {
	for _, ip := range p.Status.PodIPs {
		address, err := netip.ParseAddr(ip.IP)
		if err == nil && address.Is4() == (addressType == discoveryv1.AddressTypeIPv4) {
			return ip.IP
		}
	}
	return ""
}

func hasReadyCondition(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// isSamePod reports whether two states of a pod make the same endpoint of it.
func isSamePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Name == b.Name && slices.Equal(a.Status.PodIPs, b.Status.PodIPs) &&
		hasReadyCondition(a) == hasReadyCondition(b) && hasEnded(a) == hasEnded(b) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil)
}

func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// same compares what follow changes. A condition that is not set has its default: true, but for
// terminating.
func same(a, b *discoveryv1.Endpoint) bool {
	return slices.Equal(a.Addresses, b.Addresses) && a.TargetRef.UID == b.TargetRef.UID &&
		isTrue(a.Conditions.Ready) == isTrue(b.Conditions.Ready) && isTrue(a.Conditions.Serving) == isTrue(b.Conditions.Serving) &&
		isSet(a.Conditions.Terminating) == isSet(b.Conditions.Terminating)
}

func isTrue(condition *bool) bool { return condition == nil || *condition }

func isSet(condition *bool) bool { return condition != nil && *condition }
