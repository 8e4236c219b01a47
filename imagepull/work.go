package imagepull

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engineapi"
)

// work pulls one image after another until ctx ends.
func (p *Puller) work(ctx context.Context) {
	for t, within := p.queue.take(ctx); t != nil; t, within = p.queue.take(ctx) {
		p.pull(within, t)
	}
}

func (p *Puller) pull(ctx context.Context, t *task) {
	start, attempt := time.Now(), t.attempts // which another worker may change after finish
	image, err := p.pullImage(ctx, t)
	took := time.Since(start)
	failure := engineapi.AsError(err)
	whole, isNew := p.queue.finish(ctx, t, image, failure)
	p.sizes.pulled(t.name, failure == nil)
	switch {
	case !whole:
		p.metrics.pulled("Cancelled", took)
	case failure == nil:
		p.pulled(t, image, took)
	default:
		p.pullFailed(t, failure, isNew, attempt, took)
	}
}

// pullImage has the engine pull t.
func (p *Puller) pullImage(ctx context.Context, t *task) (image engineapi.Image, err error) {
	// If containerd is away, no secrets need to be read.
	if _, err := p.Engine.Retained(ctx); err != nil {
		return engineapi.Image{}, err
	}
	credentials, problems := p.credentials(ctx, t.image, p.queue.wanting(t.name))
	p.Logger.Info("image is pulled ahead", "image", t.image, "pods", p.podsOf(t.name), "attempt", t.attempts)
	image, err = p.Engine.Pull(ctx, engineapi.Request{
		Image: t.image, Credentials: credentials,
		Progress: func(g engineapi.Progress) { p.queue.progress(t, g) },
	})
	if err != nil {
		err = explained(engineapi.AsError(err), problems)
	}
	return image, err
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

// pulled records a pull that is finished.
func (p *Puller) pulled(t *task, image engineapi.Image, took time.Duration) {
	p.metrics.pulled("Ready", took)
	p.Logger.Info("image is ready", "image", t.image, "pods", p.podsOf(t.name), "digest", image.Target.Digest, "bytes", image.Size, "took", took)
	p.saveWanting(t.name)
	message := fmt.Sprintf("Image %s is on the node ahead of the upgrade (%d bytes, %v)", t.image, image.Size, took.Round(time.Millisecond))
	p.event(t, corev1.EventTypeNormal, "ImagePrepulled", func(string) string { return message })
}

func (p *Puller) pullFailed(t *task, failure *engineapi.Error, isNew bool, attempt int, took time.Duration) {
	p.metrics.pulled(string(failure.Reason), took)
	level := slog.LevelDebug
	if isNew {
		level = slog.LevelWarn
		p.event(t, corev1.EventTypeWarning, "ImagePrepullFailed", failure.For)
	}
	p.Logger.Log(context.Background(), level, "image could not be pulled ahead; it is tried again", "image", t.image, "pods", p.podsOf(t.name),
		"reason", failure.Reason, "attempt", attempt, "err", failure)
}

// saveWanting writes the files of all jobs that want an image, after it became ready or was lost. If the disk fails,
// the check after the next start finds that out again.
func (p *Puller) saveWanting(name string) {
	p.disk.Lock()
	defer p.disk.Unlock()
	for _, j := range p.queue.wanting(name) {
		if err := p.save(j); err != nil {
			p.Logger.Error("whether an image is ready cannot be kept; it is found out again at the next start", "image", name, "err", err)
		}
	}
}

// podsOf returns the names of the pods that want an image, for the log.
func (p *Puller) podsOf(name string) []string {
	var names []string
	for _, j := range p.queue.wanting(name) {
		names = append(names, j.name().String())
	}
	return names
}

// event records an Event for each pod that wants t, with the message for the pod's namespace.
func (p *Puller) event(t *task, eventType, reason string, message func(namespace string) string) {
	for _, j := range p.queue.wanting(t.name) {
		p.Cloud.Event(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: j.Namespace, Name: j.Pod, UID: j.UID,
		}, eventType, reason, message(j.Namespace))
	}
}
