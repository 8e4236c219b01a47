package imagepull

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/backoff"
)

const (
	// tellRetry is when a pod is told again what did not arrive. What is refused is
	// said again less and less often, down to every backoff.Longest.
	tellRetry = 10 * time.Second
	// tellPause collects what changes together.
	tellPause = 200 * time.Millisecond
)

// told is what was said last of a pod.
type told struct {
	want     saying
	next     time.Time // when it may be said again
	failures int       // in a row
	err      string
}

// tell keeps the condition PodImageReady of the node's pods as it should be. What
// the pods' watch shows is what counts: a patch that got lost, or that the cache
// took while the cloud was away, is sent again.
func (p *Puller) tell(ctx context.Context) {
	sent := map[types.UID]*told{}
	returns := 0
	for {
		changed := p.queue.Changed()
		p.mu.Lock()
		if p.returns != returns { // what was said before may not have arrived
			returns = p.returns
			clear(sent)
		}
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
func (p *Puller) tellAll(ctx context.Context, sent map[types.UID]*told) (left bool) {
	pods := p.pods.all()
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
		last := sent[uid]
		if last == nil {
			last = &told{}
			sent[uid] = last
		}
		early := time.Now().Before(last.next) && (last.want == want || last.failures > 0)
		if early || !p.opts.Online() {
			continue
		}
		p.tellPod(ctx, pod, want, have, last)
	}
	return left
}

func (p *Puller) tellPod(ctx context.Context, pod *corev1.Pod, want, have saying, last *told) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	err := p.cloud.PatchStatus(ctx, name, patchTo(pod.UID, want, have, time.Now()))
	last.want, last.next = want, time.Now().Add(tellRetry)
	switch {
	case err == nil, ctx.Err() != nil,
		// It is gone, or another has its name, as its watch will say.
		apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		last.failures, last.err = 0, ""
		return
	}
	last.failures++
	wait := backoff.After(last.failures, tellRetry)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	last.next = time.Now().Add(wait)
	if last.err != err.Error() {
		last.err = err.Error()
		p.log.Warn("pod could not be told of its images; it is tried again", "pod", name.String(), "status", want.status, "reason", want.reason, "err", err)
	}
}
