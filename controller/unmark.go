package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// unmarkPods takes what the controller said off the pods of a DaemonSet that no
// longer asks for it. A pod that went on saying that it needs an upgrade would let
// its node delete it. With keepTargets, nodes that pull images need not begin anew:
// what is said of the target is for advance to put right.
//
// That a DaemonSet once asked is known only from its watch, which is kept until
// all is done. If nobody watched when the DaemonSet changed its mind, because the
// controller was down or another took over that very moment, the marks stay until
// the pods are replaced, or the DaemonSet opts in and out again: finding them
// would take a list of all pods of the cluster. The same goes for a DaemonSet
// that is deleted without its pods.
func (r *reconciler) unmarkPods(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *state, keepTargets bool) error {
	if t.marked == noMarks {
		return nil
	}
	if t.watch != nil && t.watch.matches(ds) { // else it is another DaemonSet by now
		changes, err := r.marked(ctx, ds, t.watch, keepTargets)
		if err != nil {
			return err
		}
		done := r.apply(ctx, changes)
		t.watch.wrote(done.changed)
		if err := done.err(); err != nil {
			return err
		}
		r.reportUnmarked(ds, t, len(done.changed))
	}
	t.marked = noMarks
	r.metrics.forgetPods(key)
	return nil
}

// marked returns what takes the marks off ds's pods. It asks the apiserver, since
// the watch may not have seen the last marks yet, and page by page, since pods
// arrive whole.
func (r *reconciler) marked(ctx context.Context, ds *appsv1.DaemonSet, w *watch, keepTargets bool) ([]podPatch, error) {
	var (
		changes []podPatch
		now     = time.Now()
		pods    = r.client.CoreV1().Pods(ds.Namespace)
	)
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) })
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: w.selector.String()}, func(object runtime.Object) error {
		pod, ok := object.(*corev1.Pod)
		if !ok || !daemonset.Controls(ds, pod) || !pod.DeletionTimestamp.IsZero() {
			return nil
		}
		var want mark
		if keepTargets {
			want.target = pod.Annotations[upgrade.TargetAnnotation]
		}
		if patch := markPatch(want, pod, now); patch != nil {
			changes = append(changes, podPatch{
				pod:   &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}},
				patch: patch,
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list pods to take their marks off: %w", err)
	}
	return changes, nil
}
