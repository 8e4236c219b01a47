package informer

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Nodes follows all nodes, from the first DaemonSet that is rolled out by them
// until Run ends: one list of nodes for all DaemonSets, and none in a cluster that
// needs none. It is safe for concurrent use.
type Nodes struct {
	informer cache.SharedIndexInformer
	started  sync.Once
	running  sync.WaitGroup

	mu          sync.Mutex
	subscribers map[cache.ObjectName]func() // for the DaemonSets to look at when a node changes; guarded by mu
}

// NewNodes returns one that starts with the first call of Subscribe.
func NewNodes(client kubernetes.Interface) (*Nodes, error) {
	n := &Nodes{
		informer:    coreinformers.NewFilteredNodeInformer(client, 0, cache.Indexers{}, consistentList),
		subscribers: map[cache.ObjectName]func(){},
	}
	if err := n.informer.SetTransform(trimNode); err != nil {
		return nil, err
	}
	_, err := n.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { n.changed() },
		UpdateFunc: func(before, after any) {
			if nodeChanged(before, after) {
				n.changed()
			}
		},
		DeleteFunc: func(any) { n.changed() },
	})
	return n, err
}

// consistentList keeps an informer from beginning with what an apiserver has cached,
// which may lack what the last process did.
func consistentList(o *metav1.ListOptions) {
	if o.ResourceVersion == "0" {
		o.ResourceVersion = ""
	}
}

// Subscribe calls call whenever a node changes in a way that a rollout depends on,
// and when all nodes have been listed. The watch ends with ctx.
func (n *Nodes) Subscribe(ctx context.Context, key cache.ObjectName, call func()) {
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

// Synced reports whether all nodes have been listed once.
func (n *Nodes) Synced() bool { return n.informer.HasSynced() }

// Wait returns when nothing of the watch runs any more.
func (n *Nodes) Wait() { n.running.Wait() }

// Unsubscribe ends the calls for the DaemonSet.
func (n *Nodes) Unsubscribe(key cache.ObjectName) {
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

// List returns all nodes, which are shared and must not be changed.
func (n *Nodes) List() []*corev1.Node {
	objects := n.informer.GetStore().List()
	out := make([]*corev1.Node, 0, len(objects))
	for _, object := range objects {
		if node, ok := object.(*corev1.Node); ok {
			out = append(out, node)
		}
	}
	return out
}

// nodeChanged leaves out what a kubelet reports all the time.
func nodeChanged(before, after any) bool {
	a, okA := before.(*corev1.Node)
	b, okB := after.(*corev1.Node)
	if !okA || !okB {
		return true
	}
	return a.UID != b.UID ||
		!maps.Equal(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) ||
		!equality.Semantic.DeepEqual(a.Status.Conditions, b.Status.Conditions)
}
