package condition

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/backoff"
)

const (
	// RetryInterval is when a pod is told again what did not arrive. What is refused is
	// said again less and less often, down to every backoff.Longest.
	RetryInterval = 10 * time.Second
	// Pause collects what changes together.
	Pause = 200 * time.Millisecond
)

// told is what was said last of a pod.
type told struct {
	want     saying
	next     time.Time // when it may be said again
	failures int       // in a row
	err      string
}

// Run keeps the condition of all pods as it should be until ctx ends. What the pods'
// watch shows is what counts: a patch that got lost, or that the cache took while the
// cloud was away, is sent again.
func (r *Reporter) Run(ctx context.Context) {
	sent := map[types.UID]*told{}
	for {
		changed := r.Queue.Changed()
		if r.takeReturned() {
			clear(sent)
		}
		var later <-chan time.Time
		if r.tellAll(ctx, sent) {
			later = time.After(RetryInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.wake:
		case <-later:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(Pause):
		}
	}
}

// pods returns those of this node, and forgets what is said of others.
func (r *Reporter) pods(sent map[types.UID]*told) map[types.UID]*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := r.Pods()
	gone := func(uid types.UID) bool { return pods[uid] == nil }
	maps.DeleteFunc(r.dismissed, func(uid types.UID, _ string) bool { return gone(uid) })
	maps.DeleteFunc(sent, func(uid types.UID, _ *told) bool { return gone(uid) })
	return pods
}

// tellAll reports whether something is left to be told.
func (r *Reporter) tellAll(ctx context.Context, sent map[types.UID]*told) (left bool) {
	for uid, pod := range r.pods(sent) {
		want, have, ok := r.sayingFor(pod)
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
		if early || !r.Online() {
			continue
		}
		r.tellPod(ctx, pod, want, have, last)
	}
	return left
}

// sayingFor is what pod should say, and has not said yet; false: nothing.
func (r *Reporter) sayingFor(pod *corev1.Pod) (want, have saying, ok bool) {
	have, ours := saidBy(pod)
	s, found := r.Queue.StateOf(pod.UID)
	switch {
	case found:
		want, ours = wantedOf(s), true
	case have != (saying{}) && ours:
		want = leftOver(pod, have, r.dismissedFor(pod.UID))
	}
	return want, have, ours && want != have
}

func (r *Reporter) tellPod(ctx context.Context, pod *corev1.Pod, want, have saying, last *told) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	err := r.Cloud.PatchStatus(ctx, name, patchTo(pod.UID, want, have, time.Now()))
	last.want, last.next = want, time.Now().Add(RetryInterval)
	switch {
	case err == nil, ctx.Err() != nil,
		// It is gone, or another has its name, as its watch will say.
		apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsInvalid(err):
		last.failures, last.err = 0, ""
		return
	}
	last.failures++
	wait := backoff.After(last.failures, RetryInterval)
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	last.next = time.Now().Add(wait)
	if last.err != err.Error() {
		last.err = err.Error()
		r.Logger.Warn("pod could not be told of its images; it is tried again", "pod", name.String(), "status", want.status, "reason", want.reason, "err", err)
	}
}
