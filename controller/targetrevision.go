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
// That Kubernetes has seen the newest template can be known here before its
// revision is, since they come by two watches. For that moment the revision
// before would be the newest, and new pods would be deleted for being none of it.
// So once for each generation the apiserver itself is asked, and once for each revision
// that pods have and nobody has heard of here: then it is the watches of the DaemonSet and
// of its revisions that are late.
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
