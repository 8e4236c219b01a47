package imagepull

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// countInterval is how often the bytes of an image are counted that are not on the node, which asks no
	// registry: layers come and go with other images.
	countInterval = 5 * time.Minute
	// askAgainAtMost bounds the backoff after a failure. Registries count requests.
	askAgainAtMost = time.Hour
	// measureAtMost bounds the time for all images of a pod. Others wait meanwhile.
	measureAtMost = time.Minute
)

// sizes are how many bytes pulls would fetch that nobody has requested. A registry that has told once what an
// image of a target consists of is not asked again before the pod has another target, or the image was pulled.
type sizes struct {
	wanted chan *job // has space for one: the others are asked for again

	mu    sync.Mutex
	known map[sizeKey]size
}

// sizeKey is an image of a target. All pods with this target share what is known of it.
type sizeKey struct{ namespace, revision, image string }

type size struct {
	pod      types.UID                            // for which Size was called last
	missing  func(context.Context) (int64, error) // of Engine.Measure; nil: the registry has not told yet
	bytes    int64
	failures int       // of the registry, in a row
	next     time.Time // when the registry is asked, or the bytes are counted again
	failed   engineapi.Reason
}

func newSizes() sizes { return sizes{wanted: make(chan *job, 1), known: map[sizeKey]size{}} }

func keyOf(j *job, image jobImage) sizeKey { return sizeKey{j.Namespace, j.Revision, image.Name} }

// Size returns how many bytes a pull of a pod's target would fetch, or 0 while that is unknown. It does not
// block: Run asks the registry for manifests, for one pod at a time, and only for those that Size was called for.
func (p *Puller) Size(pod *corev1.Pod, t api.Target) int64 {
	j := newJob(pod, t, false)
	bytes, due := p.sizes.of(j)
	if due {
		select {
		case p.sizes.wanted <- j:
		default:
		}
	}
	return bytes
}

// of returns the bytes of all images of a job, or 0 if one is unknown, and whether one has to be measured.
func (s *sizes) of(j *job) (bytes int64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unknown := false
	for _, image := range j.Images {
		one, ok := s.known[keyOf(j, image)]
		if ok {
			one.pod = j.UID
			s.known[keyOf(j, image)] = one
		}
		bytes += one.bytes
		unknown = unknown || one.missing == nil
		due = due || !time.Now().Before(one.next)
	}
	if unknown {
		return 0, due
	}
	return bytes, due
}

// measure measures what Size was called for, until ctx ends.
func (p *Puller) measure(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-p.sizes.wanted:
			p.measureJob(ctx, j)
		}
	}
}

// measureJob measures the images of a job whose time has come.
func (p *Puller) measureJob(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(ctx, measureAtMost)
	defer cancel()
	p.sizes.forget(j, p.queue.shown())
	for _, image := range j.Images {
		p.sizes.mu.Lock()
		s := p.sizes.known[keyOf(j, image)]
		p.sizes.mu.Unlock()
		if time.Now().Before(s.next) {
			continue
		}
		s = p.sizeOf(ctx, j, image, s)
		p.sizes.mu.Lock()
		p.sizes.known[keyOf(j, image)] = s
		p.sizes.mu.Unlock()
	}
}

// sizeOf counts the bytes of an image, and asks the registry before if it has not told yet.
func (p *Puller) sizeOf(ctx context.Context, j *job, image jobImage, s size) size {
	s.pod, s.failed = j.UID, ""
	var err error
	if s.missing == nil {
		credentials, _ := p.credentials(ctx, image.Image, []*job{j})
		s.missing, err = p.Engine.Measure(ctx, engineapi.Request{Image: image.Image, Credentials: credentials})
	}
	if err == nil {
		s.bytes, err = s.missing(ctx)
	}
	if err == nil {
		s.failures, s.next = 0, time.Now().Add(countInterval)
		return s
	}
	p.Logger.Debug("how large an update is cannot be found out; it is tried again", "pod", j.name().String(), "image", image.Image, "err", err)
	failure := engineapi.AsError(err)
	s.failed = failure.Reason
	if s.failed != engineapi.RuntimeUnavailable { // which asks no registry
		s.failures++
	}
	const doublings = 4 // reach askAgainAtMost
	wait := min(longestRetry<<min(max(s.failures-1, 0), doublings), askAgainAtMost)
	s.next = time.Now().Add(max(wait, failure.RetryAfter))
	return s
}

// forget drops what is known of pods that are gone, and of the job's pod with another target.
func (s *sizes) forget(j *job, pods map[types.UID]*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range s.known {
		if pods[one.pod] == nil || one.pod == j.UID && key.revision != j.Revision {
			delete(s.known, key)
		}
	}
}

// pulled is called when an attempt to pull an image has ended: there may be less to fetch. If it was
// successful, the registry may have told of another image than before.
func (s *sizes) pulled(image string, successful bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range s.known {
		switch {
		case key.image != image:
		case successful:
			delete(s.known, key)
		case one.missing != nil:
			one.next = time.Now()
			s.known[key] = one
		}
	}
}

// cloudReturned has those registries asked again that could not be reached.
func (s *sizes) cloudReturned() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, one := range s.known {
		if one.failed == engineapi.Unreachable {
			one.next = time.Now()
			s.known[key] = one
		}
	}
}
