package imagepull

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Follow calls each with the current state of a pod's pre-pull and after each change, at most once
// every pause, except for the last state. It returns when the pre-pull, ctx or Run has ended, when
// each returns false, or when there is no pre-pull.
func (p *Puller) Follow(ctx context.Context, pod types.NamespacedName, pause time.Duration, each func(nodeapi.ImagePull) bool) {
	j := p.queue.Find(pod)
	if j == nil {
		return
	}
	var sent nodeapi.ImagePull
	var sentAt time.Time
	for {
		changed := p.queue.Changed()
		state, over := p.queue.Status(j)
		pending := !reflect.DeepEqual(state, sent)
		if wait := pause - time.Since(sentAt); pending && (over || wait <= 0) {
			if sent, sentAt = state, time.Now(); !each(state) {
				return
			}
			pending = false
		}
		if over {
			return
		}
		var timer <-chan time.Time
		if pending {
			timer = time.After(pause - time.Since(sentAt))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.stopped:
			return
		case <-changed:
		case <-timer:
		}
	}
}
