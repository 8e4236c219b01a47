package imagepull

import (
	"context"
	"time"

	"github.com/opencontainers/go-digest"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// firstRetry is the backoff after the first failure. It doubles up to longestRetry, kubelet's own maximum for
	// an image that cannot be pulled.
	firstRetry, longestRetry = 10 * time.Second, 5 * time.Minute
	// retryJitter is the largest random addition, as a share of the backoff. It keeps a thousand nodes from asking
	// at once a registry that has just returned.
	retryJitter = 0.25
)

// task is one image that a job wants. name and image do not change; queue.mu guards all other fields.
type task struct {
	name  string // in containerd
	image string // as in the pod

	due       time.Time // of the next attempt
	notBefore time.Time // as the registry asks; a repeated request does not override it
	attempts  int
	cancel    context.CancelFunc // of the running pull; nil: none runs
	progress  engineapi.Progress
	failure   *engineapi.Error // of the last attempt; nil if it succeeded
	failures  int              // in a row
	ready     *engineapi.Image // nil: it is not on the node
	// checked is false for an image that was ready in an earlier process, or whose record was removed, until it
	// was found on the node.
	checked bool
	tagged  digest.Digest // the image to which the tag was set last
	// tagMayHaveMoved asks for another pull of an image that is ready, to resolve its tag again.
	tagMayHaveMoved bool
}

// needsPull reports whether the image must be pulled, which takes the registry and its link.
func (t *task) needsPull() bool {
	permanent := t.failure != nil && t.failure.Permanent
	return !permanent && (t.ready == nil || t.tagMayHaveMoved)
}

// setReady records that the image is on the node.
func (t *task) setReady(image *engineapi.Image, checked bool) {
	t.ready, t.checked, t.failure, t.failures = image, checked, nil, 0
	t.progress = engineapi.Progress{Done: image.Size, Total: image.Size}
}

// failed records that an attempt has failed, and sets when the next one is due.
func (t *task) failed(err *engineapi.Error) {
	t.failure = err
	t.failures++
	if err.RetryAfter > 0 {
		t.notBefore = time.Now().Add(wait.Jitter(err.RetryAfter, retryJitter))
	}
	b := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: longestRetry, Jitter: retryJitter, Steps: t.failures}
	for range t.failures - 1 {
		b.Step()
	}
	t.setDue(time.Now().Add(b.Step()))
}

// retryAt makes t due at a time, or as soon after it as the registry allows. A task that is due
// earlier keeps its turn.
func (t *task) retryAt(at time.Time) {
	if t.due.Before(at) {
		at = t.due
	}
	t.setDue(at)
}

func (t *task) setDue(due time.Time) {
	t.due = due
	if due.Before(t.notBefore) {
		t.due = t.notBefore
	}
}

// state returns the part of t that pods of a namespace may know. image is the image's name in
// the pod.
func (t *task) state(image, namespace string) api.Image {
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
	case t.cancel != nil:
		i.State = api.Pulling
	case t.failure == nil:
	case t.failure.Permanent:
		i.State = api.Failed
	case t.due.After(time.Now()):
		i.State = api.Failed
		due := t.due.UTC().Truncate(time.Second)
		i.NextRetry = &due
	}
	return i
}
