package informer

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Owned watches the pods and ControllerRevisions of one workload, by its namespace and
// selector. It lives from StartOwned to Stop. Its methods are for the worker that holds
// the workload's key.
type Owned struct {
	uid       types.UID
	labels    labels.Selector
	images    bool // of all pods are kept
	pods      cache.SharedIndexInformer
	revisions cache.SharedIndexInformer

	// written holds pods as the apiserver returned them from patches that pods
	// has not seen yet. Without it, a reconcile that runs before the watch
	// catches up would patch the same pods again, and move the time of a
	// transition that took place once.
	written map[types.UID]*corev1.Pod

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// StartOwned returns at once. It calls changed when everything has been listed, and, from
// the first object on, whenever something changes that a reconcile reads. The watch ends
// with Stop, or with ctx.
func StartOwned(ctx context.Context, client kubernetes.Interface, o workload.Object, changed func()) (*Owned, error) {
	selector, err := metav1.LabelSelectorAsSelector(workload.SelectorOf(o))
	if err != nil {
		return nil, fmt.Errorf("watch pods: selector of the %s: %w", workload.KindOf(o), err)
	}
	narrow := func(options *metav1.ListOptions) {
		options.LabelSelector = selector.String()
		consistentList(options)
	}
	w := &Owned{
		uid:       o.GetUID(),
		labels:    selector,
		images:    keepsImages(o),
		pods:      coreinformers.NewFilteredPodInformer(client, o.GetNamespace(), 0, cache.Indexers{}, narrow),
		revisions: appsinformers.NewFilteredControllerRevisionInformer(client, o.GetNamespace(), 0, cache.Indexers{}, narrow),
		written:   map[types.UID]*corev1.Pod{},
	}
	setUp(w.pods, w.trimPod, podsDiffer, func(cache.ObjectName) { changed() })
	setUp(w.revisions, trimRevision, differ, func(cache.ObjectName) { changed() })

	// client-go logs failures of a watch: add which workload it belongs to.
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues(workload.KindOf(o).Lower(), o.GetNamespace()+"/"+o.GetName()))
	ctx, w.cancel = context.WithCancel(ctx)
	w.running.Go(func() { w.pods.RunWithContext(ctx) })
	w.running.Go(func() { w.revisions.RunWithContext(ctx) })
	w.running.Go(func() {
		if cache.WaitFor(ctx, "", w.pods.HasSyncedChecker(), w.revisions.HasSyncedChecker()) {
			changed()
		}
	})
	return w, nil
}

// Stop returns when the watch has ended.
func (w *Owned) Stop() {
	w.cancel()
	w.running.Wait()
}

// Matches reports whether w is the right watch for o.
func (w *Owned) Matches(o workload.Object) bool {
	selector, err := metav1.LabelSelectorAsSelector(workload.SelectorOf(o))
	return err == nil && o.GetUID() == w.uid && selector.String() == w.labels.String() && keepsImages(o) == w.images
}

// keepsImages reports whether o permits upgrades in place, which are decided by the images of pods.
func keepsImages(o workload.Object) bool {
	inPlace, err := api.ParseOfflineUpgrade(o.GetAnnotations())
	return inPlace && err == nil
}

func (w *Owned) trimPod(pod *corev1.Pod) *corev1.Pod { return trimPod(pod, w.images) }

// Synced reports whether everything has been listed once.
func (w *Owned) Synced() bool { return w.pods.HasSynced() && w.revisions.HasSynced() }

// Selector returns that of the workload when the watch was started.
func (w *Owned) Selector() labels.Selector { return w.labels }

// Revisions returns the ControllerRevisions that the selector matches.
func (w *Owned) Revisions() []*appsv1.ControllerRevision {
	return all[*appsv1.ControllerRevision](w.revisions)
}

// ActivePods returns o's pods that are not being deleted, each in the newest known state.
func (w *Owned) ActivePods(o workload.Object) []*corev1.Pod {
	return slices.DeleteFunc(w.AllPods(o), func(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() })
}

// AllPods returns o's pods, each in the newest known state.
func (w *Owned) AllPods(o workload.Object) []*corev1.Pod {
	pods := slices.DeleteFunc(all[*corev1.Pod](w.pods), func(pod *corev1.Pod) bool { return !daemonset.Controls(o, pod) })
	ahead := map[types.UID]*corev1.Pod{}
	for i, pod := range pods {
		if written, ok := w.written[pod.UID]; ok && Newer(written, pod) {
			ahead[pod.UID] = written
			pods[i] = written
		}
	}
	w.written = ahead // the watch has caught up with the others, or they are gone
	return pods
}

// Wrote takes pods as a patch returned them.
func (w *Owned) Wrote(pods []*corev1.Pod) {
	for _, pod := range pods {
		w.written[pod.UID] = w.trimPod(pod)
	}
}

// Newer compares resourceVersions, which are numbers that grow on every apiserver that
// passes conformance. Where they are not, it is false, and the watch counts.
func Newer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}
