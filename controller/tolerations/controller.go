// Package tolerations keeps pods on nodes that are away, where package autonomy decides that they stay.
//
// While a node is away, Kubernetes taints it, and taint eviction deletes its pods when they have tolerated
// that for as long as their tolerationSeconds say: 300 by default. Replacements start elsewhere, and when
// the node returns, kubelet ends pods that ran well all along. The controller sets the tolerationSeconds of the pods
// that are bound to such nodes, which is the one change of a toleration that an apiserver allows; restores them when that
// is no longer asked for; and sets them to 0 when a person has released a node that is away.
//
// A change of a Node or of a pod reaches an event handler, which puts the node's name into the queue. A worker takes it,
// patches the pods of the node that differ from what they should have, and then writes the Node's condition.
// Each patch is for the version that was seen: after a conflict the watch brings the newer one.
//
// Nodes are watched always; pods, those that are bound to nodes, from the first node on that asks for it, or
// did when the last controller ended. A node can do that itself. Both are trimmed. Nothing is remembered
// that is not in the cluster: what the tolerationSeconds were is in annotations of the pod, and that a node
// was autonomous in a condition of the Node.
package tolerations

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// patchRate is how many pods are patched a second, and at once at most. Beside it, rollouts have as much left
	// of the default --kube-api-qps. An apiserver takes some 1,000 such patches a second.
	patchRate = 250
	// workers is how many nodes are worked on at once, and parallel how many pods of one.
	workers, parallel = 4, 16
	// minRetry and maxRetry bound the pause after a failure. After a conflict it is minRetry.
	minRetry, maxRetry = time.Second, time.Minute
	// settle is how long after a pod has come or gone it is looked at whether any pod of the node stays.
	settle = 10 * time.Second
)

// byNode indexes pods by the node that they are bound to.
const byNode = "node"

// Controller keeps pods on nodes. Its exported fields are required, and are not changed. Run runs once.
type Controller struct {
	Client kubernetes.Interface
	Fleet  autonomy.Fleet
	// Name is the field manager, and the source of Events.
	Name    string
	Metrics *Metrics
	Logger  *slog.Logger
	// BarePod has the apiserver create a pod without tolerations as a dry run, and returns what it would create. Nil leaves
	// the default seconds of Fleet.
	BarePod func(context.Context) (*corev1.Pod, error)

	nodes     cache.SharedIndexInformer
	pods      cache.SharedIndexInformer
	watchPods func() // starts pods, once
	queue     workqueue.TypedRateLimitingInterface[string]
	limiter   flowcontrol.RateLimiter
	events    record.EventRecorder
	running   sync.WaitGroup
	// changed is when a pod of a node was last changed, by the node's name, for nodes with pods whose next step has to
	// wait. What an earlier controller did counts as done when this one sees such a pod. Only the worker that has the
	// node uses its entry.
	changed sync.Map
	// defaults are what the apiserver has said last; nil if it has not.
	defaults atomic.Pointer[autonomy.Defaults]
	unasked  string // why it did not, as was logged; only askDefaults uses it
}

// Run works until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.limiter = flowcontrol.NewTokenBucketRateLimiter(patchRate, patchRate)
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry))
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: c.Client.CoreV1().Events("")})
	c.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: c.Name})
	c.nodes = coreinformers.NewNodeInformer(c.Client, 0, cache.Indexers{})
	c.pods = coreinformers.NewFilteredPodInformer(c.Client, metav1.NamespaceAll, 0, cache.Indexers{byNode: nodeOf},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		})
	c.watchPods = sync.OnceFunc(func() {
		c.running.Go(func() {
			if c.BarePod != nil {
				again := c.askDefaults(ctx) // no pod is patched before that
				c.running.Go(func() { c.keepAsking(ctx, again) })
			}
			c.pods.RunWithContext(ctx)
		})
		c.running.Go(func() {
			if cache.WaitFor(ctx, "", c.pods.HasSyncedChecker()) {
				c.queueNodes()
			}
		})
	})
	// None of these calls fails before an informer is started.
	_, _ = c.nodes.SetTransform(c.trimNode), c.pods.SetTransform(trimPod)
	_, _ = c.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.nodeChanged, UpdateFunc: func(_, after any) { c.nodeChanged(after) },
	})
	_, _ = c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.podChanged(nil, o) },
		UpdateFunc: c.podChanged,
		DeleteFunc: func(o any) { c.podChanged(o, nil) },
	})
	c.Metrics.running.Store(c)
	defer c.Metrics.running.Store(nil)
	c.running.Go(func() { c.nodes.RunWithContext(ctx) })
	for range workers {
		c.running.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	c.running.Wait()
}

// queueNodes queues all nodes that are, or were, autonomous, or were released.
func (c *Controller) queueNodes() {
	for _, o := range c.nodes.GetStore().List() {
		c.nodeChanged(o)
	}
}

// nodeChanged queues a node that is, or was, autonomous, or was released.
func (c *Controller) nodeChanged(o any) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	s, invalid := c.Fleet.SettingOf(n)
	if autonomy.NeedsPods(n, s) {
		c.watchPods()
	}
	_, released := n.Annotations[api.ReleasedAnnotation]
	if s.On || released || invalid != nil || autonomy.ConditionOf(n) != nil {
		c.queue.Add(n.Name)
	}
}

// podChanged queues the node of a pod that does not have the tolerations that it should have, at once; and, for the
// condition, that of another pod that has come or gone, or has other tolerations, after a while: a rollout replaces pods.
// Before or after is nil, or not a boundPod, if the pod does not count.
func (c *Controller) podChanged(before, after any) {
	was, _ := before.(*boundPod)
	pod, ok := after.(*boundPod)
	if !ok {
		if was != nil {
			c.queue.AddAfter(was.node, settle)
		}
		return
	}
	n := c.node(pod.node)
	if n == nil {
		return
	}
	s, invalid := c.Fleet.SettingOf(n)
	if invalid != nil || !autonomy.NeedsPods(n, s) {
		return
	}
	switch step, err := c.fleet().Plan(pod.whole(), s, autonomy.Away(n)); {
	case step.Patch != nil || err != nil:
		c.queue.Add(n.Name)
	case was == nil || autonomy.Stays(was.whole(), s) != autonomy.Stays(pod.whole(), s):
		c.queue.AddAfter(n.Name, settle)
	}
}

// node returns a node as the watch has it, or nil.
func (c *Controller) node(name string) *corev1.Node {
	o, _, _ := c.nodes.GetStore().GetByKey(name) // it never fails
	n, _ := o.(*corev1.Node)
	return n
}

// work takes nodes until the queue is shut down.
func (c *Controller) work(ctx context.Context) {
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		again, err := c.reconcile(ctx, name)
		switch {
		case ctx.Err() != nil:
			again = 0
		case err != nil:
			c.Logger.Warn("pods could not get the tolerations that their node's autonomy asks for; it is tried again", "node", name, "err", err)
			c.queue.AddRateLimited(name)
		default:
			c.queue.Forget(name)
		}
		if again > 0 {
			c.queue.AddAfter(name, again)
		}
		c.queue.Done(name)
	}
}
