package imagepull

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/imagepull/queue"
)

// work pulls one image after another until ctx ends.
func (p *Puller) work(ctx context.Context) {
	for t, within := p.queue.TakePull(ctx); t != nil; t, within = p.queue.TakePull(ctx) {
		p.pull(within, t)
	}
}

// check checks one image after another that was ready, until ctx ends. It does not wait for pulls,
// which may take hours.
func (p *Puller) check(ctx context.Context) {
	for t, within := p.queue.TakeCheck(ctx); t != nil; t, within = p.queue.TakeCheck(ctx) {
		p.queue.Finish(within, t, p.checkOne(within, t))
	}
}

func (p *Puller) checkOne(ctx context.Context, t *queue.Task) queue.Outcome {
	failure := engineapi.AsError(p.engine.Keep(ctx, t.Ready()))
	switch {
	case failure == nil || ctx.Err() != nil:
		return queue.Kept
	case failure.Reason == engineapi.RuntimeUnavailable:
		return queue.CheckFailed(failure)
	}
	// A pull will show why.
	p.log.Warn("image that was pulled ahead is not on the node any more, and is pulled again", "image", t.Image, "pods", p.podsOf(t), "err", failure)
	p.updateJobs(t, func(j *job.Job) *job.Job { return j.With(t.Name, nil) })
	return queue.Missing
}

func (p *Puller) pull(ctx context.Context, t *queue.Task) {
	start := time.Now()
	image, problems, err := p.pullImage(ctx, t)
	took := time.Since(start)
	outcome := queue.Pulled(image)
	failure := engineapi.AsError(err)
	if failure != nil {
		if ctx.Err() == nil {
			failure = explained(failure, problems)
			p.pullFailed(t, failure, took)
		}
		outcome = queue.PullFailed(failure)
	}
	whole := p.queue.Finish(ctx, t, outcome)
	p.sizes.pulled(t.Name, failure == nil)
	switch {
	case !whole:
		p.metrics.pulled("Cancelled", took)
	case failure == nil:
		p.pulled(t, image, took)
	}
}

// pullImage has the engine pull t. It also returns what kept credentials from being used.
func (p *Puller) pullImage(ctx context.Context, t *queue.Task) (image engineapi.Image, problems []problem, err error) {
	// If containerd is away, no secrets need to be read.
	if _, err := p.engine.Retained(ctx); err != nil {
		return engineapi.Image{}, nil, err
	}
	credentials, problems := p.credentials(ctx, t.Image, p.queue.Wanting(t))
	p.log.Info("image is pulled ahead", "image", t.Image, "pods", p.podsOf(t), "attempt", t.Attempts())
	image, err = p.engine.Pull(ctx, engineapi.Request{
		Image: t.Image, Credentials: credentials,
		Progress: func(g engineapi.Progress) { p.queue.Progress(t, g) },
	})
	return image, problems, err
}

// pulled records a pull that is finished: a job that is created meanwhile finds the image ready.
func (p *Puller) pulled(t *queue.Task, image engineapi.Image, took time.Duration) {
	p.metrics.pulled("Ready", took)
	p.log.Info("image is ready", "image", t.Image, "pods", p.podsOf(t), "digest", image.Target.Digest, "bytes", image.Size, "took", took)
	p.updateJobs(t, func(j *job.Job) *job.Job { return j.With(t.Name, &image) })
	message := fmt.Sprintf("Image %s is on the node ahead of the upgrade (%d bytes, %v)", t.Image, image.Size, took.Round(time.Millisecond))
	p.event(t, corev1.EventTypeNormal, "ImagePrepulled", func(string) string { return message })
}

// explained adds the secrets that could not be read to a failure that they may have caused. To a
// client without access, a registry may answer that there is no such image.
func explained(failure *engineapi.Error, problems []problem) *engineapi.Error {
	if failure.Reason == engineapi.Unauthorized || failure.Reason == engineapi.NotFound {
		for _, problem := range problems {
			failure = failure.Explain(problem.namespace, problem.err)
		}
	}
	return failure
}

func (p *Puller) pullFailed(t *queue.Task, failure *engineapi.Error, took time.Duration) {
	p.metrics.pulled(string(failure.Reason), took)
	level := slog.LevelDebug
	if p.queue.IsNewFailure(t, failure.Reason) {
		level = slog.LevelWarn
		p.event(t, corev1.EventTypeWarning, "ImagePrepullFailed", failure.For)
	}
	p.log.Log(context.Background(), level, "image could not be pulled ahead; it is tried again", "image", t.Image, "pods", p.podsOf(t),
		"reason", failure.Reason, "attempt", t.Attempts(), "err", failure)
}

// updateJobs changes all jobs that want t, on disk and in memory. If the disk fails, the check
// after the next start makes the change again.
func (p *Puller) updateJobs(t *queue.Task, change func(*job.Job) *job.Job) {
	p.disk.Lock()
	defer p.disk.Unlock()
	for _, j := range p.queue.Wanting(t) {
		next := change(j)
		if err := p.store.Save(next); err != nil {
			p.log.Error("that an image is ready cannot be kept; it is found out again at the next start", "image", t.Image, "err", err)
		}
		p.queue.Update(next)
	}
}

// podsOf returns the names of the pods that want t, for the log.
func (p *Puller) podsOf(t *queue.Task) []string {
	var names []string
	for _, j := range p.queue.Wanting(t) {
		names = append(names, j.Name().String())
	}
	return names
}

// event records an Event for each pod that wants t, with the message for the pod's namespace.
func (p *Puller) event(t *queue.Task, eventType, reason string, message func(namespace string) string) {
	for _, j := range p.queue.Wanting(t) {
		p.cloud.Event(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: j.Namespace, Name: j.Pod, UID: j.UID,
		}, eventType, reason, message(j.Namespace))
	}
}
