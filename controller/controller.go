// Package controller carries out, in the cloud, the update strategies that a
// DaemonSet or StatefulSet, its workload, opts into with an annotation. Beside that, package tolerations keeps pods on nodes that are away.
//
// A workload opts in with spec.updateStrategy.type OnDelete, so that Kubernetes
// itself leaves its pods alone, and the annotation apps.openyurt.io/update-strategy.
// With OTA, a condition and an annotation on every pod show whether its workload has
// a newer revision, and the owner of the node decides when to take it: the controller
// deletes nothing. Package ota/api defines both. With AdvancedRollingUpdate, which
// only DaemonSets can have, the controller deletes pods, so that Kubernetes creates new ones,
// on nodes that are Ready and as fast as the DaemonSet allows. Package rollout decides which. With
// either, nodes may be asked to pull the images of the newer revision first.
//
// # A rollout step
//
// A change of a DaemonSet, pod, ControllerRevision or node reaches an event handler of
// package informer, which puts the DaemonSet's key into the queue: at once for the
// DaemonSet itself, and no sooner than backoff.Throttle allows for the others. A worker
// takes the key, waits out the DaemonSet's backoff if the last reconcile failed, and makes
// a scope: key, DaemonSet, remembered state and options. scope.apply picks the strategy;
// scope.advance makes sure that everything has been listed, finds the target revision, patches
// the pods that were upgraded while the cloud was away and those whose owners go back to an earlier revision, which package
// rollback decides, and runs one step. The step drops from expectations.Deletions what the watch shows by now,
// has rollout.NewPlan decide, and deletes the planned pods through podclient, each with its
// UID as precondition. It reverts failed deletions in the plan, and patches the annotations
// that show nodes which images to pull and what owners may do. In the end it asks the queue for the
// times at which something may change without an event, and reports the plan in metrics,
// Events and the DaemonSet's conditions. The deleted pods come back as events of the watch:
// they begin the next step.
//
// # Failures
//
// One reconcile per workload brings its pods to where they should be, from what is
// observed now and never from the content of an event. Failures are retried with backoff,
// and one pod's failure delays no other: each pod has a backoff of its own, for deletions
// in package expectations and for patches in the workload's state. A reconcile in which
// nothing succeeded counts as a failure of the workload; events about its pods and nodes
// do not shorten that wait.
//
// # Load
//
// Memory and load grow with the pods of the workloads that opted in, not with the cluster:
// DaemonSets and StatefulSets are watched everywhere, trimmed to a few fields, but
// pods and ControllerRevisions only by the selectors of those workloads. Nodes
// are watched once a DaemonSet has opted in.
//
// Run must be called by one process at a time, which a lease has to ensure. With OTA, a
// second process would send every patch twice and do no harm. With AdvancedRollingUpdate,
// each would delete as many pods as may be unavailable, twice as many in all.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/events"
	"github.com/edgehub-io/edgehub/controller/informer"
	"github.com/edgehub-io/edgehub/controller/missing"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/controller/tolerations"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// Name is how the controller calls itself in Events, as a field manager, and as
// the name of its workqueue.
const Name = "edgehub-controller"

// Defaults of Options.
const (
	// DefaultWorkers is enough to have one workload with thousands of pods in
	// work while others go on.
	DefaultWorkers = 4
	// DefaultPatches keeps a connection of HTTP/2 busy: its streams, 100 on an
	// apiserver by default, are shared by all workers and watches.
	DefaultPatches = 16
)

// Options are what New can do without. The zero value is usable.
type Options struct {
	// Workers is how many workloads are worked on at once; 0 is DefaultWorkers.
	Workers int
	// Patches is how many pods of one workload are patched or deleted at once; 0
	// is DefaultPatches.
	Patches int
	// Autonomy keeps pods on nodes that are away, where that is asked for; nil leaves all pods to Kubernetes.
	Autonomy *autonomy.Fleet
	// Namespace is the controller's own, where it proves that it creates pods as dry runs only; see package
	// successor. With "" it makes no dry runs.
	Namespace string
	// Timing is for tests that cannot wait; the zero value is what is documented.
	Timing rollout.Timing
	// Logger gets the log; nil discards it.
	Logger *slog.Logger
	// Registerer gets the metrics; nil keeps them to the controller.
	Registerer prometheus.Registerer
}

// Controller reconciles the workloads that opted in. Its methods are safe for
// concurrent use, but Run runs once at a time.
type Controller struct {
	client  kubernetes.Interface
	options Options
	metrics *metrics
	queues  *queueMetrics
	// autonomy are the metrics of package tolerations.
	autonomy *tolerations.Metrics
	synced   atomic.Bool
}

// New returns a controller that starts with Run. It fails when an option is
// negative, or when Registerer refuses a metric.
func New(client kubernetes.Interface, o Options) (*Controller, error) {
	if client == nil {
		return nil, errors.New("new controller: no client")
	}
	if o.Workers < 0 || o.Patches < 0 {
		return nil, fmt.Errorf("new controller: %d workers and %d patches at once: want neither below 0", o.Workers, o.Patches)
	}
	o.Workers = cmp.Or(o.Workers, DefaultWorkers)
	o.Patches = cmp.Or(o.Patches, DefaultPatches)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	c := &Controller{client: client, options: o, metrics: newMetrics(), queues: newQueueMetrics(), autonomy: tolerations.NewMetrics()}
	collectors := slices.Concat(c.metrics.collectors(), c.queues.collectors(), []prometheus.Collector{c.autonomy})
	if err := register(o.Registerer, collectors); err != nil {
		return nil, fmt.Errorf("new controller: register metrics: %w", err)
	}
	return c, nil
}

// Synced reports whether Run has listed every DaemonSet and StatefulSet and acts on them. It is
// false before, after, and while another process has the lead.
func (c *Controller) Synced() bool { return c.synced.Load() }

// Run works until ctx is done, and returns nil then, with no goroutine left that
// could still write to the cluster, other than an Event on its way. It waits
// through an apiserver that is away.
func (c *Controller) Run(ctx context.Context) error {
	defer c.synced.Store(false)
	queue := newQueue(c.queues)
	add := func(kind workload.Kind) func(cache.ObjectName) {
		return func(name cache.ObjectName) { queue.Add(key{kind, name}) }
	}
	daemonSets := informer.NewDaemonSets(c.client, add(workload.DaemonSet))
	statefulSets := informer.NewStatefulSets(c.client, add(workload.StatefulSet))
	r := &reconciler{
		client:       c.client,
		daemonSets:   appslisters.NewDaemonSetLister(daemonSets.GetIndexer()),
		statefulSets: appslisters.NewStatefulSetLister(statefulSets.GetIndexer()),
		queue:        queue,
		podClient: &podclient.Client{
			Kube: c.client, FieldManager: Name, Limit: c.options.Patches,
			OnPatch: c.metrics.patched, OnDelete: c.metrics.deleted,
		},
		events:  events.NewRecorder(ctx, c.client.CoreV1(), Name, c.options.Logger),
		metrics: c.metrics,
		log:     c.options.Logger,
		timing:  c.options.Timing,
		nodes:   informer.NewNodes(c.client),
		states:  newStates(),
	}

	r.missing = missing.New(c.client, r.nodes, c.options.Logger)
	if c.options.Namespace != "" {
		r.successors = &successor.Asker{Client: c.client, Namespace: c.options.Namespace, Logger: c.options.Logger}
	}

	var running sync.WaitGroup
	running.Go(func() { daemonSets.RunWithContext(ctx) })
	running.Go(func() { statefulSets.RunWithContext(ctx) })
	running.Go(func() { r.missing.Run(ctx) })
	if c.options.Autonomy != nil {
		t := &tolerations.Controller{Client: c.client, Fleet: *c.options.Autonomy, Name: Name, Metrics: c.autonomy, Logger: c.options.Logger}
		if r.successors != nil {
			t.BarePod = r.successors.BarePod
		}
		running.Go(func() { t.Run(ctx) })
	}
	running.Go(func() { <-ctx.Done(); queue.ShutDown() })
	if cache.WaitFor(ctx, "", daemonSets.HasSyncedChecker(), statefulSets.HasSyncedChecker()) {
		c.synced.Store(true)
		for range c.options.Workers {
			running.Go(func() { r.work(ctx) })
		}
	}
	running.Wait()
	r.stop()
	return nil
}
