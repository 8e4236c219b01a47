package derived

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// readPods returns the node's pods as the node itself would read them offline, and whether these
// are all.
func (o *Objects) readPods() (pods map[string][]*corev1.Pod, complete bool) {
	pods = map[string][]*corev1.Pod{}
	names, complete := o.podNames()
	for _, member := range names {
		p, err := o.readPod(member)
		switch {
		case err == nil && p.Spec.NodeName == o.Node:
			pods[p.Namespace] = append(pods[p.Namespace], slim(p))
		case err != nil && !apierrors.IsNotFound(err):
			complete = false // it may be an endpoint's
		}
	}
	return pods, complete
}

// podNames returns the names of all pods that the node has read. complete is set if one of
// them has all pods of the node.
func (o *Objects) podNames() (names []string, complete bool) {
	here := &corev1.Pod{Spec: corev1.PodSpec{NodeName: o.Node}}
	of := query.UserResource{User: query.NodeUser, Resource: podsResource}
	for _, v := range o.Views.Of(of) {
		complete = complete || v.Key.Namespace == "" && v.Key.Lasting() && v.Key.Selects(here) && v.Usable()
	}
	return o.Views.Names(of), complete
}

func (o *Objects) readPod(member string) (*corev1.Pod, error) {
	q := podQuery(query.SplitMember(member))
	cached, err := o.cached(q)
	if err != nil {
		return nil, err
	}
	laid, _ := o.Get(q, cached)
	return decode[*corev1.Pod](laid)
}

// podQuery is a GET of a pod by the node.
func podQuery(namespace, name string) *query.Query {
	return &query.Query{User: query.NodeUser, Verb: "get", Resource: podsResource, Namespace: namespace, Name: name}
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

// Reported must be called with a pod whose status an apiserver has accepted from kubelet: that of each
// pod at least once, before the cloud deletes it.
func (o *Objects) Reported(pod view.Object) {
	p, err := decode[*corev1.Pod](pod)
	if err != nil {
		return
	}
	o.lockCurrent()
	defer o.mu.Unlock()
	o.learnOwnersLocked(p)
	if s := &o.slices; !s.away && !o.slicesSettledLocked() {
		o.setPodLocked(p)
	}
}
