package imagepull

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// Backoff of an image that could not be pulled. The longest is kubelet's own.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
	// soonRetry is the longest while containerd is away: to ask costs nothing, and it
	// comes back within seconds.
	soonRetry = 10 * time.Second
	// retryJitter spreads retries, as a part of the backoff, so that a thousand nodes
	// do not ask a registry at once that has just come back.
	retryJitter = 0.25
)

// task is one image that somebody wants. It is guarded by Puller.mu.
type task struct {
	name  string // in containerd
	image string // as it stands in a pod
	// due is when it may be pulled next.
	due      time.Time
	attempts int
	running  bool
	cancel   context.CancelFunc // of the attempt that is running
	progress engine.Progress
	failure  *engine.Error // of the last attempt; nil after one that went well
	// failures are those in a row.
	failures int
	ready    *engine.Image
	// checked is false until an image that was ready in an earlier process has been
	// found on the node again.
	checked bool
}

// waits reports whether t is to be pulled, or looked for, now or later.
func (t *task) waits() bool {
	switch {
	case t.running, t.ready != nil && t.checked:
		return false
	case t.failure != nil && t.failure.Permanent:
		return false
	}
	return true
}

// failed notes how an attempt ended, and returns when the next is due.
func (t *task) failed(err *engine.Error, now time.Time) {
	t.failure = err
	t.failures++
	t.due = now.Add(max(backoff(err, t.failures), err.RetryAfter))
}

func backoff(err *engine.Error, failures int) time.Duration {
	longest := lastRetry
	if err.Reason == engine.RuntimeUnavailable {
		longest = soonRetry
	}
	d := firstRetry
	for range failures - 1 {
		if d *= 2; d >= longest {
			break
		}
	}
	d = min(d, longest)
	return d + time.Duration(retryJitter*(2*rand.Float64()-1)*float64(d))
}
