// Package retention keeps the images that jobs want on the node, releases all others
// that are held, and moves tags. Images are held by their digests until the old pod ends:
// only then a tag is set to the image that was pulled ahead.
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

// Engine is what holds images.
type Engine interface {
	// Tag has the tag of an image that Pull returned stand for it, which until then may
	// stand for the one that the pod runs. It may be called while the image is pulled again.
	Tag(ctx context.Context, i engineapi.Image) error
	// Release stops holding an image, given its name as Held returns it.
	Release(ctx context.Context, name string) error
	// Retained returns the names of all images that are held, by earlier processes too.
	Retained(ctx context.Context) ([]string, error)
	// Removals calls each with the names of images that somebody else removes, until
	// ctx ends. It survives restarts of containerd, and may then miss some.
	Removals(ctx context.Context, each func(name string))
}

// Options is what New needs. All are required.
type Options struct {
	Engine Engine
	Queue  *queue.Queue
	// Complete reports whether all jobs are known. Until then nothing is released.
	Complete func() bool
	// Load reads the jobs that are not known yet. It is called each RetryInterval until
	// Complete.
	Load func()
	// IsEnding reports whether the pod of a job is being deleted, or gone.
	IsEnding func(*job.Job) bool
	Logger   *slog.Logger
}

// Retainer decides which images stay on the node. Everything but Run may be called at
// any time, from several goroutines.
type Retainer struct {
	Options

	mu    sync.Mutex
	grace map[string]time.Time // until when images are retained that no job wants any more
}

// New returns a Retainer. It starts nothing.
func New(o Options) *Retainer {
	return &Retainer{Options: o, grace: map[string]time.Time{}}
}

// Run works until ctx ends.
func (r *Retainer) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { r.runSweeps(ctx) })
	all.Go(func() { r.runTags(ctx) })
	all.Go(func() { r.Engine.Removals(ctx, r.Queue.Removed) })
	all.Wait()
}

// GracePeriod is how long the images of a former target are held: the next target often
// shares most of them.
const GracePeriod = 10 * time.Minute

// StartGracePeriod keeps the images of a job held for GracePeriod after it has ended. Call it
// before the job ends, so that no sweep comes in between.
func (r *Retainer) StartGracePeriod(j *job.Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := time.Now().Add(GracePeriod)
	for _, w := range j.Images {
		r.grace[w.Name] = until
	}
}

// nextExpiry returns how long it is until the next grace period ends; 0 if there is none.
func (r *Retainer) nextExpiry(now time.Time) (next time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, until := range r.grace {
		left := until.Sub(now)
		if left <= 0 {
			delete(r.grace, name)
			left = time.Millisecond // it can be released now
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
	if until, ok := r.grace[name]; ok && now.Before(until) {
		return true
	}
	delete(r.grace, name)
	return false
}
