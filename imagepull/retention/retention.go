// Package retention decides which images stay on the node. It retains the images that jobs want,
// releases all others that are retained, and sets tags. Images are retained by their digests
// until the old pod is deleted: only then does a tag move to the image that was pulled ahead.
package retention

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/imagepull/queue"
)

// Engine retains images.
type Engine interface {
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

// Options are the options of New. All are required.
type Options struct {
	Engine Engine
	Queue  *queue.Queue
	// Others returns the names of images to retain besides those of jobs, if they are on the node, and
	// while the disk has room.
	Others func() []string
	// Complete reports whether all jobs are known. Nothing is released before.
	Complete func() bool
	// Load reads the jobs that are not known yet. It is called every RetryInterval until
	// Complete returns true.
	Load func()
	// IsEnding reports whether the pod of a job is being deleted, or gone.
	IsEnding func(*job.Job) bool
	Logger   *slog.Logger
}

// Retainer retains, releases and tags images. All methods except Run are safe for concurrent use.
type Retainer struct {
	Options

	othersChanged chan struct{} // one message stands for any number of changes

	mu     sync.Mutex
	grace  map[string]time.Time // end of the grace period, by the image's name
	others map[string]other     // by the image's name
}

// New returns a Retainer. It starts nothing.
func New(o Options) *Retainer {
	return &Retainer{Options: o, grace: map[string]time.Time{}, others: map[string]other{}, othersChanged: make(chan struct{}, 1)}
}

// OthersChanged must be called when Others returns something else. It does not block.
func (r *Retainer) OthersChanged() {
	select {
	case r.othersChanged <- struct{}{}:
	default:
	}
}

// Run works until ctx ends.
func (r *Retainer) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { r.runSweeps(ctx) })
	all.Go(func() { r.runTags(ctx) })
	all.Go(func() { r.Engine.Removals(ctx, r.removed) })
	all.Wait()
}

// GracePeriod is how long the images of a former target are retained: the next target often
// shares most of them.
const GracePeriod = 10 * time.Minute

// StartGracePeriod retains the images of a job for GracePeriod after the job has ended. Call it
// before the job ends, so that no sweep comes in between.
func (r *Retainer) StartGracePeriod(j *job.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := time.Now().Add(GracePeriod)
	for _, w := range j.Images {
		r.grace[w.Name] = until
	}
}

// nextExpiry returns the time until the next grace period ends, or 0 if there is none.
func (r *Retainer) nextExpiry(now time.Time) (next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, until := range r.grace {
		left := until.Sub(now)
		if left <= 0 {
			delete(r.grace, name)
			left = time.Millisecond // the image can be released now
		}
		if next == 0 || left < next {
			next = left
		}
	}
	return next
}

func (r *Retainer) inGracePeriod(name string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return now.Before(r.grace[name])
}
