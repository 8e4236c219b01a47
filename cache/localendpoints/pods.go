package localendpoints

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
	"github.com/edgehub-io/edgehub/cache/wire"
)

var (
	podsResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"} //nolint:gochecknoglobals // a constant
	podType      = wire.TypeMeta{APIVersion: "v1", Kind: "Pod"}                 //nolint:gochecknoglobals // a constant
)

// readPods returns the node's pods as the node itself would read them offline, and whether these
// are all.
func (t *Tracker) readPods() (pods map[string][]*corev1.Pod, complete bool) {
	pods = map[string][]*corev1.Pod{}
	names, complete := t.podNames()
	for _, member := range names {
		p, err := t.readPod(member)
		switch {
		case err == nil && p.Spec.NodeName == t.Node:
			pods[p.Namespace] = append(pods[p.Namespace], slim(p))
		case err != nil && !apierrors.IsNotFound(err):
			complete = false // it may be an endpoint's
		}
	}
	return pods, complete
}

// podNames returns the members of all views that the node has of pods. complete is set if one of
// them has all pods of the node.
func (t *Tracker) podNames() (names []string, complete bool) {
	here := &corev1.Pod{Spec: corev1.PodSpec{NodeName: t.Node}}
	for _, v := range t.Views.All() {
		if v.Key.User != query.NodeUser || v.Key.GVR() != podsResource {
			continue
		}
		names = append(names, v.MemberNames()...)
		complete = complete || !v.Key.Single && v.Key.Namespace == "" && v.Key.Lasting() && v.Key.Selects(here) && v.Usable()
	}
	slices.Sort(names)
	return slices.Compact(names), complete
}

// readPod returns a pod as the node would read it offline, with the status of the overlay.
func (t *Tracker) readPod(member string) (*corev1.Pod, error) {
	namespace, name := query.SplitMember(member)
	copies, err := t.Views.Seek(&query.Query{User: query.NodeUser, Verb: "get", Resource: podsResource, Namespace: namespace, Name: name})
	if err != nil {
		return nil, err
	}
	err = errNotPod
	for i := range copies {
		if !copies[i].Whole() {
			continue
		}
		o, failed := copies[i].Object()
		if failed != nil {
			err = failed
			continue
		}
		cached := overlay.Object{Type: o.Type, Encoding: o.Repr.Encoding, Bare: o.Bare}
		if laid, ok := t.Overlay.Get(podKey(namespace, name), cached); ok {
			cached = laid
		}
		if p := decodePod(cached.Encoding, cached.Bare); p != nil {
			return p, nil
		}
	}
	return nil, err
}

func podKey(namespace, name string) overlay.Key {
	return overlay.Key{Version: "v1", Resource: "pods", Namespace: namespace, Name: name}
}

// decodePod returns nil for what is no pod.
func decodePod(e wire.Encoding, bare []byte) *corev1.Pod {
	object, err := convert.FromBare(e, podType, bare)
	if err != nil {
		return nil
	}
	p, _ := object.(*corev1.Pod)
	return p
}

// slim returns what is needed of a pod.
func slim(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, OwnerReferences: p.OwnerReferences,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Status: corev1.PodStatus{
			Phase: p.Status.Phase, PodIPs: p.Status.PodIPs,
			Conditions: slices.DeleteFunc(slices.Clone(p.Status.Conditions), func(c corev1.PodCondition) bool { return c.Type != corev1.PodReady }),
		},
	}
}

// pending reports whether the cloud lacks the status of a pod, and kubelet does not know: its watch
// shows what it has reported offline. It is checked once a second.
func (t *Tracker) pending() bool {
	t.lock()
	state, now := t.state, t.Now()
	if state == nil || state.away || t.settledLocked() || now.Sub(t.checked) < pendingEvery {
		t.mu.Unlock()
		return false
	}
	t.checked = now
	t.mu.Unlock()
	return slices.ContainsFunc(t.Overlay.Updates(podsResource.Group, podsResource.Version, podsResource.Resource), t.isPending)
}

func (t *Tracker) isPending(u *overlay.Update) bool {
	reported := decodePod(u.Encoding, u.Bare)
	copies, err := t.Views.Seek(&query.Query{User: query.NodeUser, Verb: "get", Resource: podsResource, Namespace: u.Key.Namespace, Name: u.Key.Name})
	if err != nil || reported == nil {
		return false
	}
	for i := range copies {
		if !copies[i].Whole() || versions.Compare(copies[i].Entry.Version, u.ResourceVersion) > 0 {
			continue
		}
		o, err := copies[i].Object()
		if err != nil {
			continue
		}
		cached := decodePod(o.Repr.Encoding, o.Bare)
		return cached != nil && cached.UID == reported.UID && !isSamePod(cached, reported)
	}
	return false
}
