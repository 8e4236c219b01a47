package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	"github.com/edgehub-io/edgehub/controller/daemonset"
)

// objects are what a rollout is judged by, at one moment.
type objects struct {
	daemonSet *appsv1.DaemonSet
	revisions []*appsv1.ControllerRevision
	pods      []*corev1.Pod
	nodes     []*corev1.Node
}

// source follows the objects of one DaemonSet. It lives from follow to close, and
// its methods are for one goroutine.
type source struct {
	first                              *appsv1.DaemonSet
	daemonSets, revisions, pods, nodes cache.SharedIndexInformer

	// changed holds a value when something has changed since it was last read.
	changed chan struct{}
	// failed holds the first final error.
	failed chan error

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// follow returns when everything has been listed once. Until then, every error of the apiserver
// is final; later only errors of authentication and authorization are.
func follow(ctx context.Context, c *cluster, name string) (*source, error) {
	ds, err := c.client.AppsV1().DaemonSets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of daemonset %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	selected := func(o *metav1.ListOptions) { o.LabelSelector = selector.String() }
	named := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	s := &source{
		first:      ds,
		daemonSets: appsinformers.NewFilteredDaemonSetInformer(c.client, ds.Namespace, 0, cache.Indexers{}, named),
		revisions:  appsinformers.NewFilteredControllerRevisionInformer(c.client, ds.Namespace, 0, cache.Indexers{}, selected),
		pods:       coreinformers.NewFilteredPodInformer(c.client, ds.Namespace, 0, cache.Indexers{}, selected),
		nodes:      coreinformers.NewNodeInformer(c.client, 0, cache.Indexers{}),
		changed:    make(chan struct{}, 1), // one is enough to signal a change
		failed:     make(chan error, 1),    // the first counts
	}
	ctx, s.cancel = context.WithCancel(ctx)
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *source) start(ctx context.Context) error {
	synced := make(chan struct{})
	var all []cache.DoneChecker
	for _, informer := range []cache.SharedIndexInformer{s.daemonSets, s.revisions, s.pods, s.nodes} {
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

// trim drops large fields that nothing here reads.
func trim(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	if node, ok := object.(*corev1.Node); ok {
		node.Status.Images = nil
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

// now returns the present objects, or an error when the DaemonSet has been deleted.
func (s *source) now() (objects, error) {
	name := s.first.Namespace + "/" + s.first.Name
	all := listOf[*appsv1.DaemonSet](s.daemonSets)
	if len(all) == 0 {
		return objects{}, fmt.Errorf("daemonset %s has been deleted", name)
	}
	o := objects{daemonSet: all[0], nodes: listOf[*corev1.Node](s.nodes), revisions: listOf[*appsv1.ControllerRevision](s.revisions)}
	if o.daemonSet.UID != s.first.UID {
		return objects{}, fmt.Errorf("daemonset %s has been deleted and made again; run this once more", name)
	}
	for _, pod := range listOf[*corev1.Pod](s.pods) {
		if daemonset.Controls(o.daemonSet, pod) {
			o.pods = append(o.pods, pod)
		}
	}
	return o, nil
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
