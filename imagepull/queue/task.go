package queue

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/edgehub-io/edgehub/imagepull/backoff"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// firstRetry is how long an image waits that could not be pulled once.
const firstRetry = 10 * time.Second

// Task is one image that somebody wants. But for Name and Image, which do not change, it
// is guarded by Queue.mu.
type Task struct {
	Name  string // in containerd
	Image string // as it stands in a pod

	// due is when it may be pulled next.
	due time.Time
	// notBefore is when the registry wants to be asked again; RetryNow does not override it.
	notBefore time.Time
	attempts  int
	running   bool
	cancel    context.CancelFunc // of what is running
	progress  engineapi.Progress
	failure   *engineapi.Error // of the last attempt; nil after one that went well
	// failures are those in a row.
	failures int
	ready    *engineapi.Image
	// wasReady is set for a pull of an image that was ready when it began.
	wasReady bool
	// checked is false until an image that was ready in an earlier process, or that
	// somebody removed, has been found on the node again.
	checked bool
	// tagged is the image that the tag has been set to, for the pod that is to come.
	tagged digest.Digest
	// tagMayHaveMoved is set for an image that is ready, to ask the registry again.
	tagMayHaveMoved bool
}

// Attempts counts the pulls, that which is under way included. It is for who has taken
// the task.
func (t *Task) Attempts() int { return t.attempts }

// Outcome is what became of a task that was taken.
type Outcome func(t *Task, now time.Time)

// Pulled is the outcome of a pull that went well.
func Pulled(image engineapi.Image) Outcome {
	return func(t *Task, _ time.Time) {
		t.tagMayHaveMoved, t.ready, t.checked, t.failure, t.failures = false, &image, true, nil, 0
		t.progress = engineapi.Progress{Done: image.Size, Total: image.Size}
	}
}

// PullFailed is the outcome of a pull that failed. Where the image was ready before,
// what is there is good enough.
func PullFailed(err *engineapi.Error) Outcome {
	return func(t *Task, now time.Time) {
		t.tagMayHaveMoved = false
		if !t.wasReady {
			t.failed(err, now)
		}
	}
}

// Kept is the outcome of a check that found the image.
func Kept(t *Task, _ time.Time) { t.checked, t.failure, t.failures = true, nil, 0 }

// CheckFailed is the outcome of a check that could not look.
func CheckFailed(err *engineapi.Error) Outcome {
	return func(t *Task, now time.Time) { t.failed(err, now) }
}

// Missing is the outcome of a check that did not find the image. It is pulled again.
func Missing(t *Task, now time.Time) {
	t.ready, t.progress, t.failure, t.failures, t.due = nil, engineapi.Progress{}, nil, 0, now
}

// failed notes how an attempt ended, and when the next is due.
func (t *Task) failed(err *engineapi.Error, now time.Time) {
	t.failure = err
	t.failures++
	if err.RetryAfter > 0 {
		t.notBefore = now.Add(backoff.Spread(err.RetryAfter))
	}
	t.due = now.Add(backoff.After(t.failures, firstRetry))
	if t.due.Before(t.notBefore) {
		t.due = t.notBefore
	}
}

// retryNow has t tried as soon as its registry allows, from now on. A task that is due
// already keeps its place.
func (t *Task) retryNow(now time.Time) {
	t.failures = 0
	if t.due.After(now) {
		t.due = now
	}
	if t.due.Before(t.notBefore) {
		t.due = t.notBefore
	}
}
