package controller

import (
	"context"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/informer"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// scope is one reconcile of one workload. It belongs to the worker that holds key.
type scope struct {
	*reconciler
	key     key
	object  workload.Object   // as the watch has it; shared, and must not be changed
	ds      *appsv1.DaemonSet // the object, if it is a DaemonSet
	state   *state
	options rollout.Options
	// asked counts the questions about patches of pods, and askUntil is when there is no more time for others.
	asked    int
	askUntil time.Time
}

// ownedWatch returns the watch of the workload's pods and revisions, started if need be.
func (s *scope) ownedWatch(ctx context.Context) (*informer.Owned, error) {
	if s.state.owned != nil && s.state.owned.Matches(s.object) {
		return s.state.owned, nil
	}
	s.state.stopOwned()
	w, err := informer.StartOwned(ctx, s.client, s.object, s.requeue())
	if err != nil {
		return nil, err
	}
	s.state.owned = w
	return w, nil
}

// requeue returns a function that puts the workload into the queue again, once the
// throttle allows. Watches call it when they see a change, from any goroutine.
func (s *scope) requeue() func() {
	queue, key, throttle := s.queue, s.key, &s.state.throttle
	return func() { queue.AddAfter(key, throttle.Delay(time.Now())) }
}

// requeueAt puts the workload into the queue again at a time, if that is not zero.
func (s *scope) requeueAt(at, now time.Time) {
	if !at.IsZero() {
		s.queue.AddAfter(s.key, at.Sub(now))
	}
}

// ready returns the patches that need not wait because of a failure, in the array of
// patches. pods are all pods of the workload.
func (s *scope) ready(patches []status.PodPatch, pods []*corev1.Pod, now time.Time) []status.PodPatch {
	s.state.patchBackoff.Retain(pods)
	return slices.DeleteFunc(patches, func(p status.PodPatch) bool { return !s.state.patchBackoff.Ready(p.Pod.UID, now) })
}

// patchPods sends the patches, and requeues for when the first that failed may be repeated.
func (s *scope) patchPods(ctx context.Context, patches []status.PodPatch) podclient.PatchResult {
	done := s.podClient.Patch(ctx, patches)
	s.state.owned.Wrote(done.Changed)
	now, failures := time.Now(), s.state.patchBackoff
	for _, pod := range done.Changed {
		delete(failures, pod.UID)
	}
	for _, uid := range done.Unchanged {
		failures.Failed(uid, now)
	}
	s.requeueAt(failures.Next(now), now)
	return done
}
