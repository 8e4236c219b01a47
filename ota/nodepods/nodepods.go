// Package nodepods follows the pods of one node. This is the only watch of them in the hub: what acts on the node's pods,
// the owner's page, the callers of GET /pods?watch=true and /debug/cache all read it. It also selects pods as an apiserver
// does.
//
// What it has may be some milliseconds old, so it is not for deciding to delete a pod: package ota lists the pods for that.
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
	informer cache.SharedIndexInformer
	dirty    chan struct{} // one message stands for any number of changes
	shownAs  func(*corev1.Pod) *corev1.Pod
}

// New returns the pods of a node. client is for the core group, with the node's identity: a node
// may watch pods only by this selector, and kubelet's watch keeps the cache's view of it up to
// date. Run has to run for the pods to be known.
func New(client rest.Interface, node string) (*Pods, error) {
	source := cache.NewListWatchFromClient(client, "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", node))
	p := &Pods{informer: cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, nil), dirty: make(chan struct{}, 1), shownAs: func(pod *corev1.Pod) *corev1.Pod { return pod }}
	_, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { p.Changed() }, UpdateFunc: func(_, _ any) { p.Changed() }, DeleteFunc: func(any) { p.Changed() },
	})
	return p, err
}

// ShowAs has Get, All, Run and Follow return what f makes of a pod: the pod itself, which f must not change, or a copy. It is called before Run.
func (p *Pods) ShowAs(f func(*corev1.Pod) *corev1.Pod) { p.shownAs = f }

// Changed has Run call its function again, as when what ShowAs makes of the pods is something else. It does not block.
func (p *Pods) Changed() {
	select {
	case p.dirty <- struct{}{}:
	default:
	}
}

// Run follows the pods until ctx ends. It calls changed with all pods, read-only, once they are known and after
// changes, one call at a time.
func (p *Pods) Run(ctx context.Context, changed func([]*corev1.Pod)) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { p.informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), p.Synced) {
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

// Synced reports whether the pods are known.
func (p *Pods) Synced() bool { return p.informer.HasSynced() }

// Get returns a pod, read-only, or nil. It returns nil for all pods until they are known.
func (p *Pods) Get(name types.NamespacedName) *corev1.Pod {
	object, _, _ := p.informer.GetStore().GetByKey(name.String())
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return nil
	}
	return p.shownAs(pod)
}

// All returns all pods, read-only.
func (p *Pods) All() []*corev1.Pod {
	pods := p.asInCloud()
	for i, pod := range pods {
		pods[i] = p.shownAs(pod)
	}
	return pods
}

// AsInCloud is All without ShowAs, and returns false if the pods are not known yet.
func (p *Pods) AsInCloud() (pods []*corev1.Pod, known bool) { return p.asInCloud(), p.Synced() }

func (p *Pods) asInCloud() (pods []*corev1.Pod) {
	for _, object := range p.informer.GetStore().List() {
		if pod, ok := object.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}
