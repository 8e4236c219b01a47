package informer

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Nodes watches all nodes, once for all workloads: from the first one that opted in until the
// context of its Subscribe is done. A cluster without such a workload has no watch. It is safe for
// concurrent use.
type Nodes struct {
	informer cache.SharedIndexInformer
	started  sync.Once
	running  sync.WaitGroup

	mu          sync.Mutex
	subscribers map[any]func() // by workload; guarded by mu
}

// NewNodes returns one that starts with the first call of Subscribe.
func NewNodes(client kubernetes.Interface) *Nodes {
	n := &Nodes{
		informer:    coreinformers.NewFilteredNodeInformer(client, 0, cache.Indexers{}, consistentList),
		subscribers: map[any]func(){},
	}
	setUp(n.informer, trimNode, nodesDiffer, func(cache.ObjectName) { n.changed() })
	return n
}

// Subscribe has call called for the workload key, which is comparable, whenever a node changes in a way that a
// rollout depends on, and when all nodes have been listed. The watch ends with ctx.
func (n *Nodes) Subscribe(ctx context.Context, key any, call func()) {
	n.mu.Lock()
	n.subscribers[key] = call
	n.mu.Unlock()
	n.started.Do(func() {
		n.running.Go(func() { n.informer.RunWithContext(ctx) })
		n.running.Go(func() {
			if cache.WaitFor(ctx, "", n.informer.HasSyncedChecker()) {
				n.changed()
			}
		})
	})
}

// Unsubscribe ends the calls for the workload.
func (n *Nodes) Unsubscribe(key any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.subscribers, key)
}

func (n *Nodes) changed() {
	n.mu.Lock()
	calls := slices.Collect(maps.Values(n.subscribers))
	n.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// Synced reports whether all nodes have been listed once.
func (n *Nodes) Synced() bool { return n.informer.HasSynced() }

// List returns all nodes.
func (n *Nodes) List() []*corev1.Node { return all[*corev1.Node](n.informer) }

// Get returns a node, nil if there is none of this name.
func (n *Nodes) Get(name string) *corev1.Node {
	o, exists, err := n.informer.GetStore().GetByKey(name)
	if node, ok := o.(*corev1.Node); err == nil && exists && ok {
		return node
	}
	return nil
}

// Wait returns when the watch has ended.
func (n *Nodes) Wait() { n.running.Wait() }
