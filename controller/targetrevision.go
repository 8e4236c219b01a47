package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/informer"
)

// targetRevision returns the revision that the pods should have, nil while it is not known.
//
// DaemonSets and ControllerRevisions come by two watches, so the status may show that
// Kubernetes has observed the newest template before its revision arrives here. The
// previous revision would then be taken for the newest, and new pods would be deleted. So
// the apiserver itself is asked: once for each generation, and once for each unknown
// revision among the pods, which shows that those watches are behind.
func (s *scope) targetRevision(ctx context.Context, w *informer.Owned, pods []*corev1.Pod) (*appsv1.ControllerRevision, error) {
	if s.ds.Status.ObservedGeneration < s.ds.Generation {
		return nil, nil
	}
	t, revisions := s.state.rollout, w.Revisions()
	if t.confirmed != nil {
		revisions = append(revisions, t.confirmed)
	}
	if t.generation != s.ds.Generation || t.confirmed == nil || t.hasUnknown(pods, revisions) {
		list, err := s.client.AppsV1().ControllerRevisions(s.ds.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.Selector().String()})
		if err != nil {
			return nil, fmt.Errorf("list ControllerRevisions: %w", err)
		}
		var confirmed []*appsv1.ControllerRevision
		for i := range list.Items {
			confirmed = append(confirmed, &list.Items[i])
		}
		t.confirmed, t.generation = daemonset.NewestRevision(s.ds, confirmed), s.ds.Generation
		t.asked = hashesOf(pods)
		if t.confirmed != nil {
			revisions = append(revisions, t.confirmed)
		}
	}
	return daemonset.NewestRevision(s.ds, revisions), nil
}

// hasUnknown reports whether any pod has a revision that is not among revisions, and that
// the apiserver has not been asked for yet.
func (t *rolloutState) hasUnknown(pods []*corev1.Pod, revisions []*appsv1.ControllerRevision) bool {
	known := map[string]bool{}
	for _, revision := range revisions {
		known[revision.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	for _, pod := range pods {
		if hash := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; !known[hash] && !t.asked[hash] {
			return true
		}
	}
	return false
}

// hashesOf returns the revisions of pods.
func hashesOf(pods []*corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, pod := range pods {
		out[pod.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	return out
}
