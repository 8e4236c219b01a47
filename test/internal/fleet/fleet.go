// Package fleet plays the kubelets of nodes that do not exist. A node is an object
// and a heartbeat; its pods turn Ready, and go when they are deleted, as if
// something ran them. Nodes can be cut off, pods can fail, and images can be broken.
//
// The rest of the cluster is real: the node lifecycle controller taints nodes that
// are not Ready, the DaemonSet controller makes pods and the scheduler binds them.
package fleet

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// DefaultHeartbeat is below what the node lifecycle controller gives up on a node
// after: 50 s, unless its --node-monitor-grace-period is set.
const DefaultHeartbeat = 15 * time.Second

// retry is when something that failed is tried again.
const retry = 200 * time.Millisecond

// Options are what New can do without.
type Options struct {
	// Start is how long a pod takes to become Ready.
	Start time.Duration
	// Workers is how many pods are worked on at once; 0 is 8.
	Workers int
	// Heartbeat is how often a node renews its lease; 0 is DefaultHeartbeat. Each
	// is a write, which adds up with thousands of nodes.
	Heartbeat time.Duration
	// PodSelector selects by labels which pods are played; empty is all. The others
	// stay as they are.
	PodSelector string
	// Dress changes a Node before it is made; nil leaves it bare.
	Dress func(*corev1.Node)
	// Log gets what goes wrong; nil discards it.
	Log io.Writer
}

// Fleet is the nodes. Its methods are safe for concurrent use; Run runs once.
type Fleet struct {
	client  kubernetes.Interface
	options Options
	pods    cache.SharedIndexInformer
	queue   workqueue.TypedDelayingInterface[types.NamespacedName]

	mu     sync.Mutex
	nodes  map[string]bool         // whether each is cut off; guarded by mu
	broken map[string]bool         // images that cannot be pulled; guarded by mu
	failed map[types.UID]bool      // pods that are not to be Ready; guarded by mu
	since  map[types.UID]time.Time // when a pod was first seen on a connected node; guarded by mu
}

// New returns a fleet without nodes.
func New(client kubernetes.Interface, o Options) *Fleet {
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = DefaultHeartbeat
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	narrow := func(l *metav1.ListOptions) { l.LabelSelector = o.PodSelector }
	return &Fleet{
		client: client, options: o,
		pods:   coreinformers.NewFilteredPodInformer(client, "", 0, cache.Indexers{"node": byNode}, narrow),
		queue:  workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		nodes:  map[string]bool{},
		broken: map[string]bool{}, failed: map[types.UID]bool{}, since: map[types.UID]time.Time{},
	}
}

func byNode(object any) ([]string, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" {
		return nil, nil
	}
	return []string{pod.Spec.NodeName}, nil
}

// Run plays the nodes until ctx is done, and returns nil then.
func (f *Fleet) Run(ctx context.Context) error {
	add := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			f.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	_, err := f.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) },
	})
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { f.pods.RunWithContext(ctx); return nil })
	g.Go(func() error { f.beat(ctx); return nil })
	g.Go(func() error { <-ctx.Done(); f.queue.ShutDown(); return nil })
	for range f.options.Workers {
		g.Go(func() error { f.work(ctx); return nil })
	}
	return g.Wait()
}

func (f *Fleet) work(ctx context.Context) {
	for {
		key, shutdown := f.queue.Get()
		if shutdown {
			return
		}
		again, err := f.treat(ctx, key)
		f.queue.Done(key)
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			fmt.Fprintf(f.options.Log, "fleet: pod %s: %v\n", key, err)
			again = retry
		}
		if again > 0 {
			f.queue.AddAfter(key, again)
		}
	}
}

// AddNode makes a node that is Ready, with as few requests as may be.
func (f *Fleet) AddNode(ctx context.Context, name string, labels map[string]string) error {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	object.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: many, corev1.ResourceCPU: cpus}
	object.Status.Capacity = object.Status.Allocatable
	now := metav1.Now()
	object.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: reason, LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	if f.options.Dress != nil {
		f.options.Dress(object)
	}
	if _, err := f.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	f.mark(func() { f.nodes[name] = false })
	err := f.createLease(ctx, name)
	if apierrors.IsAlreadyExists(err) { // of a node that had the name before
		err = f.renew(ctx, name)
	}
	return err
}

// RemoveNode deletes the Node object. Its pods are left to the garbage collector.
func (f *Fleet) RemoveNode(ctx context.Context, name string) error {
	f.mark(func() { delete(f.nodes, name) })
	return f.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
}
