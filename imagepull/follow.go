package imagepull

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Follow calls each with the state of a pod's pre-pull, now and at each change, at
// most every pause but for the last, until it has ended, ctx or Run ends, or each
// returns false. It returns at once if there is none.
func (p *Puller) Follow(ctx context.Context, pod types.NamespacedName, pause time.Duration, each func(nodeapi.ImagePull) bool) {
	p.mu.Lock()
	j := p.findLocked(pod)
	p.mu.Unlock()
	if j == nil {
		return
	}
	var told nodeapi.ImagePull
	var at time.Time
	for {
		p.mu.Lock()
		state, over := p.lookLocked(j)
		changed := p.changed
		p.mu.Unlock()
		news := !reflect.DeepEqual(state, told)
		if wait := pause - time.Since(at); news && (over || wait <= 0) {
			if told, at = state, time.Now(); !each(state) {
				return
			}
			news = false
		}
		if over {
			return
		}
		var rest <-chan time.Time
		if news {
			rest = time.After(pause - time.Since(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.stopped:
			return
		case <-changed:
		case <-rest:
		}
	}
}

// lookLocked returns the state of what was the job j, and whether it has ended.
func (p *Puller) lookLocked(j *job.Job) (nodeapi.ImagePull, bool) {
	now := p.jobs[j.UID]
	if now == nil || now.Cancelled || now.Revision != j.Revision {
		if e, ok := p.ended[j.UID]; ok {
			return e.last, true
		}
		last := p.stateLocked(j)
		last.State = nodeapi.Superseded
		return last, true
	}
	state := p.stateLocked(now)
	return state, state.State == nodeapi.Ready || isHopeless(state)
}

// isHopeless reports whether nothing more will happen, since an image can never be
// pulled, and all others are there.
func isHopeless(s nodeapi.ImagePull) bool {
	for _, i := range s.Images {
		if i.State != nodeapi.Ready && (i.State != nodeapi.Failed || i.NextRetry != nil) {
			return false
		}
	}
	return s.State == nodeapi.Failed
}
