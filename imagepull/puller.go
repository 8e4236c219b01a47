package imagepull

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/podfiles"
)

// Engine pulls images and keeps them on the node. Its methods are called concurrently, except those for the same image
// where they do not say otherwise. *engine.Engine implements it.
type Engine interface {
	// Pull returns the image once it is complete and retained on the node.
	Pull(ctx context.Context, r engineapi.Request) (engineapi.Image, error)
	// Measure asks the registry what Pull would fetch, and returns a function that returns how many bytes of it
	// are not on the node, without the network. Both may be called during a Pull of the same image.
	Measure(ctx context.Context, r engineapi.Request) (missing func(context.Context) (int64, error), err error)
	// Imported returns those of these names that an image was imported for, which takes root; Pull takes it without the
	// network.
	Imported(ctx context.Context, names []string) ([]string, error)
	// Tag points the tag of an image that Pull returned to it; until then the tag may point to
	// the image that the pod runs. It may be called while the image is pulled again.
	Tag(ctx context.Context, i engineapi.Image) error
	// Release releases an image by its name, as Retained returns it.
	Release(ctx context.Context, name string) error
	// Retained returns the names of all retained images, including those of earlier processes.
	Retained(ctx context.Context) ([]string, error)
	// HasRoom reports whether the disk has room for images that nobody needs now.
	HasRoom(ctx context.Context) (bool, error)
	// Find returns the image that a name points to on the node. Its error has the reason
	// engineapi.Gone if the image is not complete there.
	Find(ctx context.Context, name string) (engineapi.Image, error)
	// Keep retains an image of Find, or of an earlier Pull, and checks that it is complete, without
	// the network. Its error has the reason engineapi.Gone if it must be pulled again.
	Keep(ctx context.Context, i engineapi.Image) error
	// Removals calls each with the names of images that another program removes, until ctx
	// ends. It survives restarts of containerd, but may miss removals then.
	Removals(ctx context.Context, each func(name string))
}

// Cloud is the part of the API that the Puller uses. While the cloud is away, the hub's cache
// answers. *apiserver.Cluster implements it.
type Cloud interface {
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Event records an Event of a pod. It does not block.
	Event(pod *corev1.ObjectReference, eventType, reason, message string)
}

// Options are the options of New. Dir, Engine, Cloud, Online, Others, Changed and Logger are required.
type Options struct {
	Dir    string // of the jobs' files
	Engine Engine
	Cloud  Cloud
	// Online reports whether the cloud can be reached.
	Online func() bool
	// Others returns images, as pods name them, that stay on the node besides those of pre-pulls, if
	// they are there, and as long as the disk has room. OthersChanged must be called when that changes. It is called by Run.
	Others func() []string
	// Needed returns those of Others that stay whatever room the disk has; nil is none.
	Needed func() []string
	// Changed is called when Conditions may return something else. It must not block, and may be called
	// while the Puller is locked.
	Changed func()
	// Parallelism is how many images are pulled at a time; 0 is 1.
	Parallelism int
	// Jitter is the time over which pulls are spread that a rollout requests on many nodes at
	// once; 0 is none.
	Jitter time.Duration
	// KubeletDir is the kubelet's folder with registry credentials of the node; empty is none.
	KubeletDir string
	// Registerer registers this package's metrics. Nil registers none.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Puller pulls the images of a node's pods. All methods except Run are safe for concurrent use.
type Puller struct {
	Options
	metrics *metrics
	files   *podfiles.Folder[job]

	// disk is held while jobs are created or ended, or their files written, so that files and queue agree. It is
	// taken before queue.mu.
	disk        sync.Mutex
	diskFailing bool // when reconcile last wrote or removed files

	queue  *queue
	others others
	sizes  sizes

	stopped chan struct{} // closed when Run ends
}

// New reads the files of jobs. It starts nothing. It fails if the metrics are registered already. While a file,
// or their folder, cannot be read, no image is released.
func New(o Options) (*Puller, error) {
	o.Parallelism = max(o.Parallelism, 1)
	p := &Puller{Options: o, queue: newQueue(o.Jitter), sizes: newSizes(), stopped: make(chan struct{})}
	var err error
	if p.metrics, err = newMetrics(o.Registerer, p.queue); err != nil {
		return nil, err
	}
	files, jobs, err := podfiles.Open[job](o.Dir, o.Logger)
	if err != nil {
		o.Logger.Error("which images are to be pulled cannot be read; those that are held stay until the next start", "err", err)
	}
	p.files = files
	for key, j := range jobs {
		if j.Pod == "" || j.Revision == "" || len(j.Images) == 0 {
			o.Logger.Error("a file is no pre-pull, and is not used: it has to be requested again", "namespace", key.Namespace, "uid", key.Name)
			continue
		}
		j.Namespace, j.UID = key.Namespace, types.UID(key.Name)
		p.queue.load(&j)
	}
	p.queue.onChange = o.Changed
	p.queue.sweep()
	return p, nil
}

// Run works until ctx ends. PodsChanged has to be called, too.
func (p *Puller) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { close(p.stopped) })()
	var all sync.WaitGroup
	for range p.Parallelism {
		all.Go(func() { p.work(ctx) })
	}
	all.Go(func() { p.measure(ctx) })
	all.Go(func() { p.runSweeps(ctx) })
	all.Go(func() { p.runTags(ctx) })
	all.Go(func() { p.Engine.Removals(ctx, p.removed) })
	all.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { p.reconcile() }, reconcileInterval) })
	all.Wait()
}

// CloudReturned must be called when the cloud can be reached again. It retries pulls, because registries are
// often behind the same link.
func (p *Puller) CloudReturned() {
	p.sizes.cloudReturned()
	p.queue.retry(engineapi.Unreachable, time.Now().Add(rand.N(returnJitter)))
}

// returnJitter spreads the requests to registries of nodes that return at the same time.
const returnJitter = 5 * time.Second
