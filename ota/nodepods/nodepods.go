// Package nodepods follows the pods of one node for those parts of the hub that act on them.
package nodepods

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// settleTime collects changes that come together.
const settleTime = 100 * time.Millisecond

// Pods has the node's pods as the cloud has them, online and offline, with kubelet's own status while
// offline. It is safe for concurrent use.
type Pods struct {
	store  cache.Store
	inform func(context.Context)
	synced func() bool
	dirty  chan struct{} // one message stands for any number of changes
}

// New returns the pods of a node. client is for the core group, with the node's identity: a node
// may watch pods only by this selector, and kubelet's watch keeps the cache's view of it up to
// date. Run has to run for the pods to be known.
func New(client rest.Interface, node string) *Pods {
	p := &Pods{dirty: make(chan struct{}, 1)}
	notify := func() {
		select {
		case p.dirty <- struct{}{}:
		default:
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node)),
		ObjectType:    &corev1.Pod{},
		Transform:     trim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { notify() }, UpdateFunc: func(_, _ any) { notify() }, DeleteFunc: func(any) { notify() },
		},
	})
	p.store, p.synced = store, informer.HasSynced
	p.inform = informer.RunWithContext
	return p
}

// Get returns a pod, read-only, or nil. It returns nil for all pods until they are known.
func (p *Pods) Get(name types.NamespacedName) *corev1.Pod {
	object, _, _ := p.store.GetByKey(name.String())
	pod, _ := object.(*corev1.Pod)
	return pod
}

// Synced reports whether the pods are known.
func (p *Pods) Synced() bool { return p.synced() }

// Run follows the pods until ctx ends. It calls changed with all pods, read-only, once they are known and after
// changes, one call at a time.
func (p *Pods) Run(ctx context.Context, changed func([]*corev1.Pod)) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.inform(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), p.synced) {
		return
	}
	for {
		changed(p.All())
		select {
		case <-ctx.Done():
			return
		case <-time.After(settleTime):
		}
		select {
		case <-ctx.Done():
			return
		case <-p.dirty:
		}
	}
}

// All returns all pods, read-only.
func (p *Pods) All() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range p.store.List() {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// trim removes what nobody here reads, and what takes most of a pod's memory.
func trim(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	pod.ManagedFields = nil
	pod.Spec.Volumes, pod.Spec.Affinity, pod.Spec.Tolerations = nil, nil, nil
	for _, containers := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			containers[i] = corev1.Container{Name: c.Name, Image: c.Image, ImagePullPolicy: c.ImagePullPolicy, RestartPolicy: c.RestartPolicy}
		}
	}
	return pod, nil
}
