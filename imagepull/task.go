package imagepull

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// Backoff of an image that could not be pulled. The longest is kubelet's own.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 5 * time.Minute
	// retryJitter spreads retries, as a part of the backoff, so that a thousand nodes
	// do not ask a registry at once that has just come back.
	retryJitter = 0.25
)

// task is one image that somebody wants. It is guarded by Puller.mu.
type task struct {
	name  string // in containerd
	image string // as it stands in a pod
	// due is when it may be pulled next.
	due time.Time
	// notBefore is when the registry wants to be asked again, whoever is in a hurry.
	notBefore time.Time
	attempts  int
	running   bool
	cancel    context.CancelFunc // of what is running
	progress  engineapi.Progress
	failure   *engineapi.Error // of the last attempt; nil after one that went well
	// failures are those in a row.
	failures int
	ready    *engineapi.Image
	// checked is false until an image that was ready in an earlier process, or that
	// somebody removed, has been found on the node again.
	checked bool
	// tagged is the image that the tag has been set to, for the pod that is to come.
	tagged digest.Digest
	// again is set for an image that is ready, and whose tag may have moved.
	again bool
}

// kind is what can be done for a task.
type kind func(*task) bool

// toPull takes the registry, and as long as its line is thin.
func toPull(t *task) bool {
	hopeless := t.failure != nil && t.failure.Permanent
	return !t.running && !hopeless && (t.ready == nil || t.again && t.checked)
}

// toCheck takes containerd alone.
func toCheck(t *task) bool { return !t.running && t.ready != nil && !t.checked }

// failed notes how an attempt ended, and when the next is due.
func (t *task) failed(err *engineapi.Error, now time.Time) {
	t.failure = err
	t.failures++
	if err.RetryAfter > 0 {
		t.notBefore = now.Add(err.RetryAfter + time.Duration(retryJitter*rand.Float64()*float64(err.RetryAfter)))
	}
	t.due = now.Add(backoff(t.failures, firstRetry, lastRetry))
	if t.due.Before(t.notBefore) {
		t.due = t.notBefore
	}
}

// hurry has t tried as soon as its registry allows, from now on. A task that is due
// already keeps its place.
func (t *task) hurry(now time.Time) {
	t.failures = 0
	if t.due.After(now) {
		t.due = now
	}
	if t.due.Before(t.notBefore) {
		t.due = t.notBefore
	}
}

// backoff doubles from first to last, with jitter.
func backoff(failures int, first, last time.Duration) time.Duration {
	d := first
	for range failures - 1 {
		if d *= 2; d >= last {
			break
		}
	}
	d = min(d, last)
	return d + time.Duration(retryJitter*(2*rand.Float64()-1)*float64(d))
}
