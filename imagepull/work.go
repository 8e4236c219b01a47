package imagepull

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/imagepull/engine"
)

// work pulls one image after the other until ctx ends.
func (p *Puller) work(ctx context.Context) {
	for t := p.take(ctx); t != nil; t = p.take(ctx) {
		p.attempt(ctx, t)
	}
}

// attempt looks after one task, which take has marked as running.
func (p *Puller) attempt(ctx context.Context, t *task) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	t.cancel = cancel
	if !p.isWantedLocked(t.name) {
		cancel()
	}
	known := t.ready
	if known == nil {
		t.attempts++
	}
	p.mu.Unlock()

	if known != nil {
		p.check(ctx, t, *known)
		return
	}
	p.pull(ctx, t)
}

// check finds out whether an image that was ready still is.
func (p *Puller) check(ctx context.Context, t *task, known engine.Image) {
	err := p.engine.Keep(ctx, known)
	failure := failureOf(err)
	if failure != nil && failure.Reason == engine.Gone {
		p.log.Warn("image that was pulled ahead is gone; it is pulled again", "image", t.image, "err", err)
		p.note(t, func(j *job) *job { return j.with(t.name, nil) })
	}
	p.finish(ctx, t, func() {
		switch {
		case failure == nil:
			t.checked, t.failure, t.failures = true, nil, 0
		case failure.Reason == engine.Gone:
			t.ready, t.progress, t.due = nil, engine.Progress{}, time.Now()
		default:
			t.failed(failure, time.Now())
		}
	})
}

func (p *Puller) pull(ctx context.Context, t *task) {
	start := time.Now()
	credentials, problems := p.credentials(ctx, t)
	p.log.Info("image is pulled ahead", "image", t.image, "pods", p.podsOf(t), "attempt", t.attempts)
	image, err := p.engine.Pull(ctx, engine.Request{
		Image: t.image, Credentials: credentials,
		Progress: func(g engine.Progress) {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.progress = g
			p.wakeLocked()
		},
	})
	took := time.Since(start)
	failure := failureOf(err)
	if failure != nil && ctx.Err() == nil {
		p.pullFailed(t, failure, problems, took)
	}
	p.finish(ctx, t, func() {
		if failure != nil {
			t.failed(failure, time.Now())
			return
		}
		t.ready, t.checked, t.failure, t.failures = &image, true, nil, 0
		t.progress = engine.Progress{Done: image.Size, Total: image.Size}
	})
	switch {
	case ctx.Err() != nil:
		p.metrics.pulled("Cancelled", took)
	case failure == nil:
		p.pulled(t, image, took)
	}
}

// pulled comes after finish: a job that is made from now on finds the image ready.
func (p *Puller) pulled(t *task, image engine.Image, took time.Duration) {
	p.metrics.pulled("Ready", took)
	p.log.Info("image is ready", "image", t.image, "pods", p.podsOf(t), "digest", image.Target.Digest, "bytes", image.Size, "took", took)
	p.note(t, func(j *job) *job { return j.with(t.name, &image) })
	p.event(t, corev1.EventTypeNormal, "ImagePrepulled",
		fmt.Sprintf("Image %s is on the node ahead of the upgrade (%d bytes, %v)", t.image, image.Size, took.Round(time.Millisecond)))
}

func (p *Puller) pullFailed(t *task, failure *engine.Error, problems []error, took time.Duration) {
	if failure.Reason == engine.Unauthorized {
		failure.Explain(errors.Join(problems...)) // a secret that could not be read may be the reason
	}
	p.metrics.pulled(string(failure.Reason), took)
	p.log.Warn("image could not be pulled ahead", "image", t.image, "pods", p.podsOf(t), "reason", failure.Reason, "err", failure)
	p.mu.Lock()
	news := t.failure == nil || t.failure.Reason != failure.Reason
	p.mu.Unlock()
	if news {
		p.event(t, corev1.EventTypeWarning, "ImagePrepullFailed", failure.Error())
	}
}

// finish ends an attempt: what it found is noted by change, unless it was cut short.
func (p *Puller) finish(ctx context.Context, t *task, change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.running, t.cancel = false, nil
	if ctx.Err() == nil {
		change()
	}
	p.refreshLocked(time.Now())
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

// event tells all pods that want t.
func (p *Puller) event(t *task, eventType, reason, message string) {
	for _, j := range p.jobsOf(t) {
		p.cloud.Event(&corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: j.Namespace, Name: j.Pod, UID: j.UID,
		}, eventType, reason, message)
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
