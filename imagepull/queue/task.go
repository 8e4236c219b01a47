package queue

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/imagepull/backoff"
	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

// firstRetry is the backoff after the first failure.
const firstRetry = 10 * time.Second

// Task is one image that a job wants. Name and Image do not change; Queue.mu guards all other
// fields.
type Task struct {
	Name  string // in containerd
	Image string // as in the pod

	due       time.Time // of the next attempt
	notBefore time.Time // as the registry asks; RetryNow does not override it
	attempts  int       // pulls
	running   bool
	cancel    context.CancelFunc // cancels what is running
	progress  engineapi.Progress
	failure   *engineapi.Error // of the last attempt; nil if it succeeded
	failures  int              // in a row
	ready     *engineapi.Image
	wasReady  bool // the image was ready when the running pull began
	// checked is false for an image that was ready in an earlier process, or whose record was
	// removed, until a check has found it on the node.
	checked bool
	tagged  digest.Digest // the image that Tagged reported last
	// tagMayHaveMoved asks for another pull of an image that is ready, to resolve its tag again.
	tagMayHaveMoved bool
}

// Attempts counts the pulls, including the running one. Only the worker that has taken the task
// may call it.
func (t *Task) Attempts() int { return t.attempts }

// Ready returns the image that a check is for. Only the worker that has taken the task may call
// it.
func (t *Task) Ready() engineapi.Image { return *t.ready }

// needsPull reports whether the image must be pulled, which takes the registry and its link.
func (t *Task) needsPull() bool {
	permanent := t.failure != nil && t.failure.Permanent
	return !t.running && !permanent && (t.ready == nil || t.tagMayHaveMoved && t.checked)
}

// needsCheck reports whether the image must be checked, which takes only containerd.
func (t *Task) needsCheck() bool { return !t.running && t.ready != nil && !t.checked }

// Outcome is the result of a task that was taken.
type Outcome func(t *Task, now time.Time)

// Pulled is the outcome of a pull that succeeded.
func Pulled(image engineapi.Image) Outcome {
	return func(t *Task, _ time.Time) {
		t.tagMayHaveMoved, t.ready, t.checked, t.failure, t.failures = false, &image, true, nil, 0
		t.progress = engineapi.Progress{Done: image.Size, Total: image.Size}
	}
}

// PullFailed is the outcome of a pull that failed. An image that was ready before stays ready.
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

// CheckFailed is the outcome of a check that could not be made.
func CheckFailed(err *engineapi.Error) Outcome {
	return func(t *Task, now time.Time) { t.failed(err, now) }
}

// Missing is the outcome of a check that did not find the image, which must be pulled again.
func Missing(t *Task, now time.Time) {
	t.ready, t.progress, t.failure, t.failures, t.due = nil, engineapi.Progress{}, nil, 0, now
}

func (t *Task) failed(err *engineapi.Error, now time.Time) {
	t.failure = err
	t.failures++
	if err.RetryAfter > 0 {
		t.notBefore = now.Add(wait.Jitter(err.RetryAfter, backoff.Jitter))
	}
	t.setDue(now.Add(backoff.After(t.failures, firstRetry)))
}

// retryAt makes t due at a time, or as soon after it as the registry allows. A task that is due
// earlier keeps its turn.
func (t *Task) retryAt(at time.Time) {
	t.failures = 0
	if t.due.Before(at) {
		at = t.due
	}
	t.setDue(at)
}

func (t *Task) setDue(due time.Time) {
	t.due = due
	if due.Before(t.notBefore) {
		t.due = t.notBefore
	}
}

// state returns the part of t that pods of a namespace may know. image is the image's name in
// the pod.
func (t *Task) state(image, namespace string, now time.Time) api.Image {
	i := api.Image{
		Image: image, State: api.Queued,
		BytesDone: t.progress.Done, BytesTotal: t.progress.Total, Attempts: t.attempts,
	}
	if t.ready != nil {
		i.State, i.Digest = api.Ready, t.ready.Target.Digest.String()
		return i
	}
	if t.failure != nil {
		i.Reason, i.LastError = string(t.failure.Reason), t.failure.For(namespace)
	}
	switch {
	case t.running:
		i.State = api.Pulling
	case t.failure == nil:
	case t.failure.Permanent:
		i.State = api.Failed
	case t.due.After(now):
		i.State = api.Failed
		due := t.due.UTC().Truncate(time.Second)
		i.NextRetry = &due
	}
	return i
}
