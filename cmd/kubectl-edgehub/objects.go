package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/cmd/kubectl-edgehub/progress"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// source follows the objects of one workload. It lives from follow to close, and
// its methods are for one goroutine.
type source struct {
	first           workload.Object
	workloads, pods cache.SharedIndexInformer

	// changed holds a value when something has changed since it was last read.
	changed chan struct{}
	// failed holds the first final error.
	failed chan error

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// follow returns when everything has been listed once. Until then, every error of the apiserver
// is final; later only errors of authentication and authorization are.
func follow(ctx context.Context, c *cluster, n named) (*source, error) {
	first, err := get(ctx, c, n)
	if err != nil {
		return nil, err
	}
	selector, err := selectorOf(first)
	if err != nil {
		return nil, err
	}
	selected := func(o *metav1.ListOptions) { o.LabelSelector = selector }
	byName := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.name).String()
	}
	inform := appsinformers.NewFilteredDaemonSetInformer
	if n.kind == workload.StatefulSet {
		inform = appsinformers.NewFilteredStatefulSetInformer
	}
	s := &source{
		first:     first,
		workloads: inform(c.client, c.namespace, 0, cache.Indexers{}, byName),
		pods:      coreinformers.NewFilteredPodInformer(c.client, c.namespace, 0, cache.Indexers{}, selected),
		changed:   make(chan struct{}, 1), // one is enough to signal a change
		failed:    make(chan error, 1),    // the first counts
	}
	ctx, s.cancel = context.WithCancel(ctx)
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func get(ctx context.Context, c *cluster, n named) (workload.Object, error) {
	if n.kind == workload.StatefulSet {
		return c.client.AppsV1().StatefulSets(c.namespace).Get(ctx, n.name, metav1.GetOptions{})
	}
	return c.client.AppsV1().DaemonSets(c.namespace).Get(ctx, n.name, metav1.GetOptions{})
}

// selectorOf returns the label selector of w's pods.
func selectorOf(w workload.Object) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(workload.SelectorOf(w))
	if err != nil {
		return "", fmt.Errorf("selector of %s: %w", progress.NameOf(w), err)
	}
	return selector.String(), nil
}

// podsOf returns the pods that w controls, by name.
func podsOf(ctx context.Context, c *cluster, w workload.Object) ([]*corev1.Pod, error) {
	selector, err := selectorOf(w)
	if err != nil {
		return nil, err
	}
	list, err := c.client.CoreV1().Pods(w.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return controlled(w, pods), nil
}

// revisionsOf returns the ControllerRevisions that w controls.
func revisionsOf(ctx context.Context, c *cluster, w workload.Object) ([]*appsv1.ControllerRevision, error) {
	selector, err := selectorOf(w)
	if err != nil {
		return nil, err
	}
	list, err := c.client.AppsV1().ControllerRevisions(w.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	var out []*appsv1.ControllerRevision
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return controlled(w, out), nil
}

func (s *source) start(ctx context.Context) error {
	synced := make(chan struct{})
	var all []cache.DoneChecker
	for _, informer := range []cache.SharedIndexInformer{s.workloads, s.pods} {
		if err := informer.SetTransform(trim); err != nil {
			return err
		}
		err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { s.tellError(err, synced) })
		if err != nil {
			return err
		}
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { s.tellChange() },
			UpdateFunc: func(any, any) { s.tellChange() },
			DeleteFunc: func(any) { s.tellChange() },
		})
		if err != nil {
			return err
		}
		all = append(all, informer.HasSyncedChecker())
		s.running.Go(func() { informer.RunWithContext(ctx) })
	}
	s.running.Go(func() {
		if cache.WaitFor(ctx, "", all...) {
			close(synced)
		}
	})
	select {
	case <-synced:
		return nil
	case err := <-s.failed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trim drops what nothing here reads.
func trim(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}

func (s *source) tellChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *source) tellError(err error, synced chan struct{}) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the watch has ended as watches do, and the reflector opens it again
	}
	final := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	select {
	case <-synced:
	default:
		final = true
	}
	if !final {
		return
	}
	select {
	case s.failed <- err:
	default:
	}
}

// now returns the workload and its pods, or an error when it has been deleted.
func (s *source) now() (workload.Object, []*corev1.Pod, error) {
	name := progress.NameOf(s.first)
	all := listOf[workload.Object](s.workloads)
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("%s has been deleted", name)
	}
	if all[0].GetUID() != s.first.GetUID() {
		return nil, nil, fmt.Errorf("%s has been deleted and made again; run this once more", name)
	}
	return all[0], controlled(all[0], listOf[*corev1.Pod](s.pods)), nil
}

// controlled returns those of objects that w controls, in their array.
func controlled[T metav1.Object](w workload.Object, objects []T) []T {
	return slices.DeleteFunc(objects, func(o T) bool { return !daemonset.Controls(w, o) })
}

func listOf[T any](informer cache.SharedIndexInformer) []T {
	var out []T
	for _, object := range informer.GetStore().List() {
		if t, ok := object.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// close stops the source and waits for its goroutines.
func (s *source) close() {
	s.cancel()
	s.running.Wait()
}
