package controller

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

// scope is one reconcile of one DaemonSet: what it is about, and what it works with. It
// belongs to the worker that holds key.
type scope struct {
	*reconciler
	key     cache.ObjectName
	ds      *appsv1.DaemonSet // as the watch has it; shared, and must not be changed
	state   *state
	options rollout.Options
}

// ownedWatch returns the watch of the DaemonSet's pods and revisions, started if need be.
func (s *scope) ownedWatch(ctx context.Context) (*watch, error) {
	if s.state.watch != nil && s.state.watch.matches(s.ds) {
		return s.state.watch, nil
	}
	if s.state.watch != nil {
		s.state.watch.stop()
		s.state.watch = nil
	}
	w, err := startOwned(ctx, s.client, s.ds, s.requeue())
	if err != nil {
		return nil, err
	}
	s.state.watch = w
	return w, nil
}

// requeue returns a function that puts the DaemonSet into the queue again, once the
// throttle allows. Watches call it when they see a change, from any goroutine.
func (s *scope) requeue() func() {
	queue, key, throttle := s.queue, s.key, &s.state.throttle
	return func() { queue.AddAfter(key, throttle.wait(time.Now())) }
}

// requeueAt puts the DaemonSet into the queue again at a time, if that is not zero.
func (s *scope) requeueAt(at, now time.Time) {
	if !at.IsZero() {
		s.queue.AddAfter(s.key, at.Sub(now))
	}
}

// ready returns those of the patches that need not wait because of a failure. pods are
// all pods of the DaemonSet. It reuses the array of patches.
func (s *scope) ready(patches []podPatch, pods []*corev1.Pod, now time.Time) []podPatch {
	s.state.podBackoff.keep(pods)
	return slices.DeleteFunc(patches, func(p podPatch) bool { return !s.state.podBackoff.may(p.pod.UID, now) })
}

// patchPods sends the patches, and looks again when the first that failed may be repeated.
func (s *scope) patchPods(ctx context.Context, patches []podPatch) patchResult {
	done := s.podClient.patch(ctx, patches)
	s.state.watch.wrote(done.changed)
	now, failures := time.Now(), s.state.podBackoff
	for _, pod := range done.changed {
		failures.succeeded(pod.UID)
	}
	for _, uid := range done.unchanged {
		failures.failed(uid, now)
	}
	s.requeueAt(failures.next(now), now)
	return done
}
