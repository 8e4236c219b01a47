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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/imagepull/condition"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/imagepull/queue"
	"github.com/edgehub-io/edgehub/imagepull/retention"
)

// Engine pulls images. Its methods are called concurrently, except those for the same image.
// *engine.Engine implements it.
type Engine interface {
	// Pull returns the image once it is complete and retained on the node.
	Pull(ctx context.Context, r engineapi.Request) (engineapi.Image, error)
	// Measure asks the registry what Pull would fetch, and returns a function that returns how many bytes of it
	// are not on the node, without the network. Both may be called during a Pull of the same image.
	Measure(ctx context.Context, r engineapi.Request) (missing func(context.Context) (int64, error), err error)
	retention.Engine
}

// Cloud is the part of the API that the Puller uses. While the cloud is away, the hub's cache
// answers. *apiserver.Cluster implements it.
type Cloud interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	condition.Cloud
	// Event records an Event of a pod. It does not block.
	Event(pod *corev1.ObjectReference, eventType, reason, message string)
}

// Options are the options of New.
type Options struct {
	// Dir is the folder of the queue's files. Required.
	Dir string
	// Engine pulls. Required.
	Engine Engine
	// Cloud is the apiserver. Required.
	Cloud Cloud
	// Online reports whether the cloud can be reached. By default it always can.
	Online func() bool
	// Others returns images, as pods name them, that stay on the node besides those of pre-pulls, if
	// they are there, and as long as the disk has room. OthersChanged must be called when that changes. Nil means none.
	Others func() []string
	// Parallelism is how many images are pulled at a time; 0 is 1.
	Parallelism int
	// Jitter is the time over which pulls are spread that a rollout requests on many nodes at
	// once; 0 is none.
	Jitter time.Duration
	// KubeletDir is the kubelet's folder with registry credentials of the node; empty is none.
	KubeletDir string
	// Registerer registers this package's metrics. Nil registers none.
	Registerer prometheus.Registerer
	// Logger may be nil.
	Logger *slog.Logger
}

// Puller pulls the images of a node's pods. All methods except Run are safe for concurrent use.
type Puller struct {
	opts    Options
	engine  Engine
	cloud   Cloud
	log     *slog.Logger
	metrics *metrics

	// disk is held while jobs are created, changed or ended, so that the files and the queue
	// are consistent.
	disk       sync.Mutex
	store      job.Store
	diskErrors map[types.NamespacedName]string // the disk's last error
	missing    map[types.UID]time.Time         // when the pod of a job was first missed while the cloud could be reached

	queue      *queue.Queue
	conditions *condition.Reporter
	retention  *retention.Retainer
	pods       pods
	sizes      sizes

	incomplete atomic.Bool // not all files of jobs could be read yet

	stopped chan struct{} // closed when Run ends
}

// New reads the queue from disk. It starts nothing. It fails if an option is missing, or the
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
	if o.Others == nil {
		o.Others = func() []string { return nil }
	}
	o.Parallelism = max(o.Parallelism, 1)
	p := &Puller{
		opts: o, engine: o.Engine, cloud: o.Cloud, log: o.Logger, store: job.NewStore(o.Dir, o.Logger),
		diskErrors: map[types.NamespacedName]string{}, missing: map[types.UID]time.Time{},
		queue: queue.New(o.Jitter), sizes: newSizes(), stopped: make(chan struct{}),
	}
	p.conditions = condition.New(condition.Options{
		Cloud: o.Cloud, Queue: p.queue, Pods: p.pods.all, Online: o.Online, Logger: o.Logger,
	})
	p.retention = retention.New(retention.Options{
		Engine: o.Engine, Queue: p.queue, Others: p.others, Complete: func() bool { return !p.incomplete.Load() }, Load: p.load,
		IsEnding: p.pods.isEnding, Logger: o.Logger,
	})
	var err error
	if p.metrics, err = newMetrics(o.Registerer, p.queue); err != nil {
		return nil, err
	}
	p.load()
	return p, nil
}

// load reads the jobs from disk. If that fails the Puller starts nevertheless, and retries
// later.
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

// others returns the names in containerd of Options.Others.
func (p *Puller) others() []string {
	names := p.opts.Others()
	for i, image := range names {
		names[i] = job.ImageName(image)
	}
	return names
}

// OthersChanged must be called when Options.Others returns something else. It does not block.
func (p *Puller) OthersChanged() { p.retention.OthersChanged() }

// Retained reports whether an image, as pods name it, is on the node and stays there.
func (p *Puller) Retained(image string) bool { return p.retention.Retained(job.ImageName(image)) }

// Missing reports whether one of Options.Others was not on the node when it was last looked for. It
// does not report an image that was not looked for, such as without containerd.
func (p *Puller) Missing(image string) bool { return p.retention.Missing(job.ImageName(image)) }

// Run works until ctx ends. PodsChanged has to be called, too.
func (p *Puller) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { close(p.stopped) })()
	var all sync.WaitGroup
	for range p.opts.Parallelism {
		all.Go(func() { p.work(ctx) })
	}
	all.Go(func() { p.check(ctx) })
	all.Go(func() { p.measure(ctx) })
	all.Go(func() { p.retention.Run(ctx) })
	all.Go(func() { p.conditions.Run(ctx) })
	all.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { p.reconcile() }, reconcileInterval) })
	all.Wait()
}

// CloudReturned must be called when the cloud can be reached again. It retries patches of
// conditions, and pulls, because registries are often behind the same link.
func (p *Puller) CloudReturned() {
	p.conditions.CloudReturned()
	p.sizes.cloudReturned()
	p.queue.Retry(engineapi.Unreachable, time.Now().Add(rand.N(returnJitter)))
}

// returnJitter spreads the requests to registries of nodes that return at the same time.
const returnJitter = 5 * time.Second
