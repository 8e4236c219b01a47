package informer

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Owned follows the pods and ControllerRevisions of one DaemonSet, by its
// namespace and selector. It lives from StartOwned to Stop. Its methods are for
// the worker that holds the DaemonSet's key.
type Owned struct {
	uid       types.UID
	labels    labels.Selector
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

// StartOwned returns at once. It calls changed when everything has been listed,
// and from then on, and possibly before, whenever something changes that a
// reconcile looks at. It ends with Stop, or silently with ctx.
func StartOwned(ctx context.Context, client kubernetes.Interface, ds *appsv1.DaemonSet, changed func()) (*Owned, error) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("watch pods: selector of the DaemonSet: %w", err)
	}
	narrow := func(o *metav1.ListOptions) {
		o.LabelSelector = selector.String()
		consistentList(o)
	}
	w := &Owned{
		uid:       ds.UID,
		labels:    selector,
		pods:      coreinformers.NewFilteredPodInformer(client, ds.Namespace, 0, cache.Indexers{}, narrow),
		revisions: appsinformers.NewFilteredControllerRevisionInformer(client, ds.Namespace, 0, cache.Indexers{}, narrow),
		written:   map[types.UID]*corev1.Pod{},
	}
	if err := w.prepare(changed); err != nil {
		return nil, fmt.Errorf("watch pods and ControllerRevisions: %w", err)
	}

	// client-go logs failures of a watch: add which DaemonSet it belongs to.
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("daemonset", ds.Namespace+"/"+ds.Name))
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

func (w *Owned) prepare(changed func()) error {
	if err := w.pods.SetTransform(trimPod); err != nil {
		return err
	}
	if err := w.revisions.SetTransform(trimRevision); err != nil {
		return err
	}
	_, err := w.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			if podChanged(before, after) {
				changed()
			}
		},
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return err
	}
	_, err = w.revisions.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	return err
}

// podChanged leaves out what a kubelet reports all the time and no reconcile
// looks at.
func podChanged(before, after any) bool {
	a, okA := before.(*corev1.Pod)
	b, okB := after.(*corev1.Pod)
	if !okA || !okB {
		return true
	}
	return a.UID != b.UID ||
		a.Status.Phase != b.Status.Phase ||
		a.Spec.NodeName != b.Spec.NodeName ||
		unscheduled(a) != unscheduled(b) ||
		!equality.Semantic.DeepEqual(readyOn(a), readyOn(b)) ||
		waiting(a) != waiting(b) ||
		status.MarkOf(a) != status.MarkOf(b) ||
		imagesOn(a) != imagesOn(b) ||
		a.Labels[appsv1.ControllerRevisionHashLabelKey] != b.Labels[appsv1.ControllerRevisionHashLabelKey] ||
		a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
		!sameController(a, b)
}

// readyOn returns pod's Ready condition, or nil.
func readyOn(pod *corev1.Pod) *corev1.PodCondition { return upgrade.Condition(pod, corev1.PodReady) }

// unscheduled returns why pod is not scheduled: "" if it is, or if the scheduler has not
// reported a reason yet.
func unscheduled(pod *corev1.Pod) string {
	if c := upgrade.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return c.Reason
	}
	return ""
}

// imagesOn is what pod's node reports about the images of the next revision, without
// the times.
func imagesOn(pod *corev1.Pod) corev1.PodCondition {
	c := upgrade.Condition(pod, upgrade.ImageCondition)
	if c == nil {
		return corev1.PodCondition{}
	}
	return corev1.PodCondition{Status: c.Status, Reason: c.Reason, Message: c.Message}
}

// waiting is what the first container that waits does so for, or "".
func waiting(pod *corev1.Pod) string {
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil {
				return statuses[i].Name + w.Reason
			}
		}
	}
	return ""
}

func sameController(a, b *corev1.Pod) bool {
	x, y := metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b)
	if x == nil || y == nil {
		return x == y
	}
	return x.UID == y.UID
}

// Stop returns when nothing of the watch runs any more.
func (w *Owned) Stop() {
	w.cancel()
	w.running.Wait()
}

// Matches reports whether w still is the right watch for ds.
func (w *Owned) Matches(ds *appsv1.DaemonSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	return err == nil && ds.UID == w.uid && selector.String() == w.labels.String()
}

// Synced reports whether everything has been listed once.
func (w *Owned) Synced() bool { return w.pods.HasSynced() && w.revisions.HasSynced() }

// Selector returns that of the DaemonSet when the watch was started.
func (w *Owned) Selector() labels.Selector { return w.labels }

// Revisions returns the ControllerRevisions that the selector matches.
func (w *Owned) Revisions() []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	for _, object := range w.revisions.GetStore().List() {
		if revision, ok := object.(*appsv1.ControllerRevision); ok {
			out = append(out, revision)
		}
	}
	return out
}

// ActivePods returns ds's pods that are not on their way out, each in the newest
// state known. They are shared and must not be changed.
func (w *Owned) ActivePods(ds *appsv1.DaemonSet) []*corev1.Pod {
	all := w.AllPods(ds)
	return slices.DeleteFunc(all, func(pod *corev1.Pod) bool { return !pod.DeletionTimestamp.IsZero() })
}

// AllPods returns ds's pods, also those on their way out, each in the newest
// state known. They are shared and must not be changed.
func (w *Owned) AllPods(ds *appsv1.DaemonSet) []*corev1.Pod {
	objects := w.pods.GetStore().List()
	out := make([]*corev1.Pod, 0, len(objects))
	ahead := map[types.UID]*corev1.Pod{}
	for _, object := range objects {
		pod, ok := object.(*corev1.Pod)
		if !ok || !daemonset.Controls(ds, pod) {
			continue
		}
		if written, ok := w.written[pod.UID]; ok && Newer(written, pod) {
			ahead[pod.UID] = written
			pod = written
		}
		out = append(out, pod)
	}
	w.written = ahead // the others have been caught up with, or are gone
	return out
}

// Wrote takes pods as a patch returned them.
func (w *Owned) Wrote(pods []*corev1.Pod) {
	for _, pod := range pods {
		if trimmed, err := trimPod(pod); err == nil {
			w.written[pod.UID] = trimmed.(*corev1.Pod) // trimPod keeps the type
		}
	}
}

// Newer compares resourceVersions, which are numbers that grow on every
// apiserver that passes conformance. Where they are not, the watch counts.
func Newer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}
