package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// The trim functions run on everything a watch brings before it is kept. They
// leave what this package reads and what an informer needs (name, UID and
// resourceVersion). Objects of other types, such as the tombstones of an
// informer, pass unchanged.

// trimDaemonSet drops the pod template, which is most of a DaemonSet: the
// images of a revision are read from its ControllerRevision.
func trimDaemonSet(object any) (any, error) {
	ds, ok := object.(*appsv1.DaemonSet)
	if !ok {
		return object, nil
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         ds.Namespace,
			Name:              ds.Name,
			UID:               ds.UID,
			ResourceVersion:   ds.ResourceVersion,
			Generation:        ds.Generation,
			DeletionTimestamp: ds.DeletionTimestamp,
			Annotations:       only(ds.Annotations, strategyAnnotation, oldStrategyAnnotation),
		},
		Spec: appsv1.DaemonSetSpec{
			Selector:       ds.Spec.Selector,
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: ds.Spec.UpdateStrategy.Type},
		},
		Status: appsv1.DaemonSetStatus{ObservedGeneration: ds.Status.ObservedGeneration},
	}, nil
}

// trimPod keeps who a pod is, whose it is, where it runs, and its conditions.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            only(pod.Labels, appsv1.ControllerRevisionHashLabelKey),
			Annotations:       only(pod.Annotations, upgrade.TargetAnnotation),
			OwnerReferences:   pod.OwnerReferences,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{Conditions: pod.Status.Conditions},
	}, nil
}

// trimRevision drops labels and annotations that a ControllerRevision takes over
// from its DaemonSet, kubectl's copy of the whole object among them.
func trimRevision(object any) (any, error) {
	revision, ok := object.(*appsv1.ControllerRevision)
	if !ok {
		return object, nil
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       revision.Namespace,
			Name:            revision.Name,
			UID:             revision.UID,
			ResourceVersion: revision.ResourceVersion,
			Labels:          only(revision.Labels, appsv1.ControllerRevisionHashLabelKey),
			OwnerReferences: revision.OwnerReferences,
		},
		Revision: revision.Revision,
		Data:     revision.Data,
	}, nil
}

// only returns the entries of m with these keys, nil when there is none.
func only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := m[key]; ok {
			if out == nil {
				out = make(map[string]string, len(keys))
			}
			out[key] = value
		}
	}
	return out
}
