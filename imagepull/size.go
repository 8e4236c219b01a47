package imagepull

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/backoff"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

const (
	// sizeLasts is how long a size is used: a tag may move, and layers come and go with other images.
	sizeLasts = time.Hour
	// measureAtMost bounds the time for all images of a pod. Others wait meanwhile.
	measureAtMost = time.Minute
)

// sizes are how many bytes pulls would fetch that nobody has requested.
type sizes struct {
	wanted chan *job.Job // has space for one: the others are asked for again

	mu    sync.Mutex
	known map[types.UID]size // by pod
}

type size struct {
	revision string
	bytes    int64 // 0: unknown, or nothing
	until    time.Time
}

func newSizes() sizes { return sizes{wanted: make(chan *job.Job, 1), known: map[types.UID]size{}} }

// Size returns how many bytes a pull of a pod's target would fetch, or 0 while that is unknown. It does not
// block: Run asks the registry for manifests, for one pod at a time, and only for those that Size was called for.
func (p *Puller) Size(pod *corev1.Pod, t upgrade.Target) int64 {
	known, fresh := p.sizes.of(pod.UID, t.Revision)
	if !fresh {
		select {
		case p.sizes.wanted <- job.New(pod, t, false, time.Now()):
		default:
		}
	}
	return known
}

// of returns what is known of a pod's target, and whether that need not be measured now.
func (s *sizes) of(pod types.UID, revision string) (bytes int64, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[pod]
	if known.revision != revision {
		return 0, false
	}
	return known.bytes, time.Now().Before(known.until)
}

// measure measures what Size was called for, until ctx ends.
func (p *Puller) measure(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case j := <-p.sizes.wanted:
			if _, fresh := p.sizes.of(j.UID, j.Revision); !fresh {
				p.setSize(j, p.sizeOf(ctx, j))
			}
		}
	}
}

func (p *Puller) sizeOf(ctx context.Context, j *job.Job) size {
	ctx, cancel := context.WithTimeout(ctx, measureAtMost)
	defer cancel()
	s := size{revision: j.Revision, until: time.Now().Add(sizeLasts)}
	for i := range j.Images {
		image := j.Images[i].Image
		credentials, _ := p.credentials(ctx, image, []*job.Job{j})
		bytes, err := p.engine.Measure(ctx, engineapi.Request{Image: image, Credentials: credentials})
		if err != nil {
			p.log.Debug("how large an update is cannot be found out; it is tried again", "pod", j.Name().String(), "image", image, "err", err)
			return size{revision: j.Revision, until: time.Now().Add(backoff.Longest)}
		}
		s.bytes += bytes
	}
	return s
}

// setSize also forgets pods that are gone.
func (p *Puller) setSize(j *job.Job, now size) {
	pods := p.pods.all()
	p.sizes.mu.Lock()
	defer p.sizes.mu.Unlock()
	for uid := range p.sizes.known {
		if pods[uid] == nil {
			delete(p.sizes.known, uid)
		}
	}
	p.sizes.known[j.UID] = now
}
