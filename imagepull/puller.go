package imagepull

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/condition"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/imagepull/queue"
	"github.com/edgehub-io/edgehub/imagepull/retention"
)

// Engine is what pulls an image. Its methods are called from several goroutines,
// those for one image by one at a time. *engine.Engine is one.
type Engine interface {
	// Pull returns the image once it is complete on the node, and held there.
	Pull(ctx context.Context, r engineapi.Request) (engineapi.Image, error)
	// Keep makes sure without the network that an image that Pull returned once is
	// there and held. Its error has the reason engine.Gone where that takes a pull.
	Keep(ctx context.Context, i engineapi.Image) error
	retention.Engine
}

// Cloud is what the Puller needs of the apiserver. While the cloud is away, the hub's cache
// answers. *apiserver.Cluster is one.
type Cloud interface {
	// Watch calls each with all pods of this node, once they are known and each time
	// they have changed, until ctx ends. They are not changed by anybody.
	Watch(ctx context.Context, each func([]*corev1.Pod))
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	condition.Cloud
	// Event records an Event of a pod. It does not block.
	Event(pod *corev1.ObjectReference, eventType, reason, message string)
}

// Options is what New needs to know.
type Options struct {
	// Dir is where the queue is kept. Required.
	Dir string
	// Engine pulls. Required.
	Engine Engine
	// Cloud is the apiserver. Required.
	Cloud Cloud
	// Online reports whether the cloud can be reached. Nil is always.
	Online func() bool
	// Parallelism is how many images are pulled at a time; 0 is 1.
	Parallelism int
	// Jitter is over how long the pulls that a rollout asks for on many nodes at once
	// are spread; 0 is not at all.
	Jitter time.Duration
	// KubeletDir is where kubelet looks for credentials of the whole node; empty:
	// none are read.
	KubeletDir string
	// Registerer takes this package's metrics. Nil counts without publishing.
	Registerer prometheus.Registerer
	// Logger gets a line per fact. Nil logs nothing.
	Logger *slog.Logger
}

// Puller is a node's queue of images. Everything but Run may be called at any
// time, from several goroutines.
type Puller struct {
	opts    Options
	engine  Engine
	cloud   Cloud
	log     *slog.Logger
	metrics *metrics

	// disk is held while jobs are made, changed or ended, so that the files and the queue
	// agree.
	disk       sync.Mutex
	store      job.Store
	diskErrors map[types.NamespacedName]string // the disk's last error

	queue      *queue.Queue
	conditions *condition.Reporter
	retention  *retention.Retainer
	pods       pods

	incomplete atomic.Bool // not all files of jobs could be read yet

	stopped chan struct{} // closed when Run is to end
}

// New reads the queue from disk. It starts nothing. It fails if an option is missing, or if
// metrics are registered already.
func New(o Options) (*Puller, error) {
	if o.Dir == "" || o.Engine == nil || o.Cloud == nil {
		return nil, errors.New("create the queue of images: Dir, Engine and Cloud are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Online == nil {
		o.Online = func() bool { return true }
	}
	o.Parallelism = max(o.Parallelism, 1)
	p := &Puller{
		opts: o, engine: o.Engine, cloud: o.Cloud, log: o.Logger, store: job.NewStore(o.Dir, o.Logger),
		queue: queue.New(o.Jitter), pods: pods{online: o.Online, missing: map[types.UID]time.Time{}},
		diskErrors: map[types.NamespacedName]string{}, stopped: make(chan struct{}),
	}
	p.conditions = condition.New(condition.Options{
		Cloud: o.Cloud, Queue: p.queue, Pods: p.pods.all, Online: o.Online, Logger: o.Logger,
	})
	p.retention = retention.New(retention.Options{
		Engine: o.Engine, Queue: p.queue, Complete: func() bool { return !p.incomplete.Load() }, Load: p.load,
		IsEnding: p.pods.isEnding, Logger: o.Logger,
	})
	var err error
	if p.metrics, err = newMetrics(o.Registerer, p.queue); err != nil {
		return nil, err
	}
	p.load()
	return p, nil
}

// load reads what is on disk. A disk that cannot be read now is no reason not to
// serve; it is read again later.
func (p *Puller) load() {
	p.disk.Lock()
	defer p.disk.Unlock()
	jobs, err := p.store.Load()
	if err != nil {
		p.log.Error("pre-pulls that were asked for before cannot all be read; it is tried again, and their images stay", "err", err)
	}
	p.queue.Add(jobs)
	p.incomplete.Store(err != nil) // after the jobs are in the queue
}

// Run works until ctx ends.
func (p *Puller) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { close(p.stopped) })()
	var all sync.WaitGroup
	for range p.opts.Parallelism {
		all.Go(func() { p.work(ctx) })
	}
	all.Go(func() { p.check(ctx) })
	all.Go(func() { p.retention.Run(ctx) })
	all.Go(func() { p.conditions.Run(ctx) })
	all.Go(func() { p.cloud.Watch(ctx, p.onPods) })
	all.Go(func() { p.reconcileLoop(ctx) })
	all.Wait()
}

// CloudReturned is to be called when the cloud can be reached again: conditions are patched
// that could not be patched before, and registries, which often are behind the same line,
// are asked again.
func (p *Puller) CloudReturned() {
	p.conditions.CloudReturned()
	p.queue.Retry(engineapi.Unreachable, time.Now().Add(rand.N(returnJitter)))
}

// returnJitter keeps nodes that come back together from asking a registry at once.
const returnJitter = 5 * time.Second
