package imagepull

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// tellRetry is when a pod is told again what was refused, or did not arrive.
	tellRetry = 10 * time.Second
	// tellPause collects what changes together.
	tellPause = 200 * time.Millisecond
)

// told is what was said last of a pod, and when.
type told struct {
	want saying
	at   time.Time
}

// tell keeps the condition PodImageReady of the node's pods as it should be. What
// the pods' watch shows is what counts: a patch that got lost, or that the cache
// took while the cloud was away, is sent again.
func (p *Puller) tell(ctx context.Context) {
	sent := map[types.UID]told{}
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		var later <-chan time.Time
		if p.tellAll(ctx, sent) {
			later = time.After(tellRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-later:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(tellPause):
		}
	}
}

// tellAll reports whether something is left to be told.
func (p *Puller) tellAll(ctx context.Context, sent map[types.UID]told) (left bool) {
	p.mu.Lock()
	pods := p.pods
	p.mu.Unlock()
	for uid := range sent {
		if pods[uid] == nil {
			delete(sent, uid)
		}
	}
	for uid, pod := range pods {
		want, have, ok := p.sayingFor(pod)
		if !ok {
			continue
		}
		left = true
		last, again := sent[uid]
		if !p.opts.Online() || again && last.want == want && time.Since(last.at) < tellRetry {
			continue
		}
		sent[uid] = told{want, time.Now()}
		p.tellPod(ctx, pod, want, have)
	}
	return left
}

func (p *Puller) tellPod(ctx context.Context, pod *corev1.Pod, want, have saying) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	err := p.cloud.PatchStatus(ctx, name, patchTo(pod.UID, want, have, time.Now()))
	switch {
	case err == nil:
		p.log.Debug("pod was told of its images", "pod", name.String(), "status", want.status, "reason", want.reason)
	case ctx.Err() != nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // it is gone, as its watch will say
	default:
		p.log.Warn("pod could not be told of its images; it is tried again", "pod", name.String(), "status", want.status, "reason", want.reason, "err", err)
	}
}
