package imagepull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// work pulls one image after the other until ctx ends.
func (p *Puller) work(ctx context.Context) {
	for t, within := p.take(ctx, toPull); t != nil; t, within = p.take(ctx, toPull) {
		p.pull(within, t)
	}
}

// check looks for images that were ready, one after the other, until ctx ends. It
// does not wait for pulls, which may take hours.
func (p *Puller) check(ctx context.Context) {
	for t, within := p.take(ctx, toCheck); t != nil; t, within = p.take(ctx, toCheck) {
		p.checkOne(within, t)
	}
}

func (p *Puller) checkOne(ctx context.Context, t *task) {
	p.mu.Lock()
	known := *t.ready
	p.mu.Unlock()
	failure := failureOf(p.engine.Keep(ctx, known))
	away := failure != nil && failure.Reason == engine.RuntimeUnavailable
	gone := failure != nil && !away && ctx.Err() == nil
	if gone { // whatever is in the way, a pull will tell
		p.log.Warn("image that was pulled ahead is not on the node any more, and is pulled again", "image", t.image, "pods", p.podsOf(t), "err", failure)
		p.note(t, func(j *job) *job { return j.with(t.name, nil) })
	}
	p.finish(ctx, t, func() {
		switch {
		case gone:
			t.ready, t.progress, t.failure, t.failures, t.due = nil, engine.Progress{}, nil, 0, time.Now()
		case away:
			t.failed(failure, time.Now())
		default:
			t.checked, t.failure, t.failures = true, nil, 0
		}
	})
}

func (p *Puller) pull(ctx context.Context, t *task) {
	start := time.Now()
	p.mu.Lock()
	t.attempts++
	again := t.ready != nil
	p.mu.Unlock()
	image, problems, err := p.ask(ctx, t)
	took := time.Since(start)
	failure := failureOf(err)
	if failure != nil && ctx.Err() == nil {
		failure = explained(failure, problems)
		p.pullFailed(t, failure, took)
	}
	whole := p.finish(ctx, t, func() {
		t.again = false
		switch {
		case failure != nil && again: // what is there is good enough
			return
		case failure != nil:
			t.failed(failure, time.Now())
			return
		}
		t.ready, t.checked, t.failure, t.failures = &image, true, nil, 0
		t.progress = engine.Progress{Done: image.Size, Total: image.Size}
	})
	switch {
	case !whole:
		p.metrics.pulled("Cancelled", took)
	case failure == nil:
		p.pulled(t, image, took)
	}
}

// ask has the engine pull t. It also returns what kept credentials from being used.
func (p *Puller) ask(ctx context.Context, t *task) (image engine.Image, problems []problem, err error) {
	// Without containerd, nothing has to be read from the cloud.
	if _, err := p.engine.Held(ctx); err != nil {
		return engine.Image{}, nil, err
	}
	credentials, problems := p.credentials(ctx, t)
	p.log.Info("image is pulled ahead", "image", t.image, "pods", p.podsOf(t), "attempt", t.attempts)
	image, err = p.engine.Pull(ctx, engine.Request{
		Image: t.image, Credentials: credentials,
		Progress: func(g engine.Progress) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if t.ready == nil {
				t.progress = g
				p.wakeLocked()
			}
		},
	})
	return image, problems, err
}

// pulled comes after finish: a job that is made from now on finds the image ready.
func (p *Puller) pulled(t *task, image engine.Image, took time.Duration) {
	p.metrics.pulled("Ready", took)
	p.log.Info("image is ready", "image", t.image, "pods", p.podsOf(t), "digest", image.Target.Digest, "bytes", image.Size, "took", took)
	p.note(t, func(j *job) *job { return j.with(t.name, &image) })
	message := fmt.Sprintf("Image %s is on the node ahead of the upgrade (%d bytes, %v)", t.image, image.Size, took.Round(time.Millisecond))
	p.event(t, corev1.EventTypeNormal, "ImagePrepulled", func(string) string { return message })
}

// explained says which secrets could not be read, if that may be the reason. A
// registry may answer that there is no such image to who may not know of it.
func explained(failure *engine.Error, problems []problem) *engine.Error {
	if failure.Reason == engine.Unauthorized || failure.Reason == engine.NotFound {
		for _, problem := range problems {
			failure = failure.Explain(problem.namespace, problem.err)
		}
	}
	return failure
}

func (p *Puller) pullFailed(t *task, failure *engine.Error, took time.Duration) {
	p.metrics.pulled(string(failure.Reason), took)
	p.mu.Lock()
	news := t.failure == nil || t.failure.Reason != failure.Reason
	p.mu.Unlock()
	level := slog.LevelDebug
	if news {
		level = slog.LevelWarn
		p.event(t, corev1.EventTypeWarning, "ImagePrepullFailed", failure.For)
	}
	p.log.Log(context.Background(), level, "image could not be pulled ahead; it is tried again", "image", t.image, "pods", p.podsOf(t),
		"reason", failure.Reason, "attempt", t.attempts, "err", failure)
}

// finish ends what take has begun: what was found is noted by change, unless it was
// cut short. It reports whether it was not.
func (p *Puller) finish(ctx context.Context, t *task, change func()) (whole bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if whole = ctx.Err() == nil; whole {
		change()
	}
	t.cancel()
	t.running, t.cancel = false, nil
	p.refreshLocked(time.Now())
	return whole
}

// note changes all jobs that want t, on disk and in memory. A change that the disk
// does not take is made again at the next start: the image is looked for then.
func (p *Puller) note(t *task, change func(*job) *job) {
	p.disk.Lock()
	defer p.disk.Unlock()
	for _, j := range p.jobsOf(t) {
		next := change(j)
		if err := p.folder.save(next); err != nil {
			p.log.Error("that an image is ready cannot be kept; it is found out again at the next start", "image", t.image, "err", err)
		}
		p.mu.Lock()
		p.jobs[j.UID] = next
		p.mu.Unlock()
	}
}

func (p *Puller) jobsOf(t *task) []*job {
	p.mu.Lock()
	defer p.mu.Unlock()
	var jobs []*job
	for _, j := range p.sortedLocked() {
		if j.wants(t.name) {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// podsOf names the pods that want t, for a line of the log.
func (p *Puller) podsOf(t *task) []string {
	var names []string
	for _, j := range p.jobsOf(t) {
		names = append(names, j.name().String())
	}
	return names
}

// event posts an Event about t to all pods that want it, each with the message for its
// namespace.
func (p *Puller) event(t *task, eventType, reason string, message func(namespace string) string) {
	for _, j := range p.jobsOf(t) {
		p.cloud.Event(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: j.Namespace, Name: j.Pod, UID: j.UID,
		}, eventType, reason, message(j.Namespace))
	}
}

// failureOf is err as the engine's own type, or nil.
func failureOf(err error) *engine.Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*engine.Error](err); ok {
		return e
	}
	return engine.NewError(engine.Other, err)
}
