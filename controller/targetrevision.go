package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/informer"
)

// targetRevision returns the revision that the pods should have, nil while it is not known.
//
// DaemonSets and ControllerRevisions come by two watches, so the status may show that
// Kubernetes has observed the newest template before its revision arrives here. Taking the
// previous revision for the newest would delete new pods. So the apiserver itself is asked:
// once for each generation, and once for each unknown revision among the pods, which shows
// that those watches are behind.
func (s *scope) targetRevision(ctx context.Context, w *informer.Owned, pods []*corev1.Pod) (*appsv1.ControllerRevision, error) {
	if s.ds.Status.ObservedGeneration < s.ds.Generation {
		return nil, nil
	}
	t, revisions, hashes := s.state.rollout, w.Revisions(), hashesOf(pods)
	if t.confirmed != nil {
		revisions = append(revisions, t.confirmed)
	}
	unknown := hashes.Difference(hashesOf(revisions)).Difference(t.asked)
	if t.generation != s.ds.Generation || t.confirmed == nil || unknown.Len() > 0 {
		list, err := s.client.AppsV1().ControllerRevisions(s.ds.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.Selector().String()})
		if err != nil {
			return nil, fmt.Errorf("list ControllerRevisions: %w", err)
		}
		var confirmed []*appsv1.ControllerRevision
		for i := range list.Items {
			confirmed = append(confirmed, &list.Items[i])
		}
		t.confirmed, t.generation, t.asked = daemonset.NewestRevision(s.ds, confirmed), s.ds.Generation, hashes
		revisions = append(revisions, confirmed...)
	}
	return daemonset.NewestRevision(s.ds, revisions), nil
}

// hashesOf returns the hashes of the revisions, or of the pods' revisions.
func hashesOf[T metav1.Object](objects []T) sets.Set[string] {
	out := sets.Set[string]{}
	for _, o := range objects {
		out.Insert(o.GetLabels()[appsv1.ControllerRevisionHashLabelKey])
	}
	return out
}
