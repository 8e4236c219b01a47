package imagepull

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
)

// Follow calls each with the state of a pod's pre-pull, now and at each change, at
// most every pause but for the last, until it has ended, ctx or Run ends, or each
// returns false. It returns at once if there is none.
func (p *Puller) Follow(ctx context.Context, pod types.NamespacedName, pause time.Duration, each func(nodeapi.ImagePull) bool) {
	j := p.queue.Find(pod)
	if j == nil {
		return
	}
	var told nodeapi.ImagePull
	var at time.Time
	for {
		changed := p.queue.Changed()
		state, over := p.queue.Status(j)
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
