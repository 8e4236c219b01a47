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
	// RetryInterval is when a patch is sent again that did not arrive. One that is refused is
	// sent less and less often, down to every backoff.Longest.
	RetryInterval = 10 * time.Second
	// SettleInterval collects changes that come together.
	SettleInterval = 200 * time.Millisecond
)

// lastReport is the last patch of a pod's condition.
type lastReport struct {
	desired  condition
	next     time.Time // when it may be sent again
	failures int       // in a row
	err      string
}

// Run keeps the condition of all pods as it should be until ctx ends. What the pods'
// watch shows is what counts: a patch that got lost, or that the cache took while the
// cloud was away, is sent again.
func (r *Reporter) Run(ctx context.Context) {
	reports := map[types.UID]*lastReport{}
	for {
		changed := r.Queue.Changed()
		if r.takeReturned() {
			clear(reports)
		}
		var later <-chan time.Time
		if r.reportAll(ctx, reports) {
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
		case <-time.After(SettleInterval):
		}
	}
}

// pods returns those of this node, and forgets what is known of others.
func (r *Reporter) pods(reports map[types.UID]*lastReport) map[types.UID]*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := r.Pods()
	gone := func(uid types.UID) bool { return pods[uid] == nil }
	maps.DeleteFunc(r.suppressed, func(uid types.UID, _ string) bool { return gone(uid) })
	maps.DeleteFunc(reports, func(uid types.UID, _ *lastReport) bool { return gone(uid) })
	return pods
}

// reportAll patches the pods whose condition differs. It reports whether there were any.
func (r *Reporter) reportAll(ctx context.Context, reports map[types.UID]*lastReport) (left bool) {
	for uid, pod := range r.pods(reports) {
		desired, current, ok := r.pending(pod)
		if !ok {
			continue
		}
		left = true
		last := reports[uid]
		if last == nil {
			last = &lastReport{}
			reports[uid] = last
		}
		early := time.Now().Before(last.next) && (last.desired == desired || last.failures > 0)
		if early || !r.Online() {
			continue
		}
		r.report(ctx, pod, desired, current, last)
	}
	return left
}

// pending returns the condition that a pod should have, and the current one, if they differ.
func (r *Reporter) pending(pod *corev1.Pod) (desired, current condition, ok bool) {
	current, ours := currentOf(pod)
	s, found := r.Queue.StateOf(pod.UID)
	switch {
	case found:
		desired, ours = desiredFor(s), true
	case current != (condition{}) && ours:
		desired = desiredWithoutPull(pod, current, r.suppressedFor(pod.UID))
	}
	return desired, current, ours && desired != current
}

func (r *Reporter) report(ctx context.Context, pod *corev1.Pod, desired, current condition, last *lastReport) {
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	err := r.Cloud.PatchStatus(ctx, name, patchTo(pod.UID, desired, current, time.Now()))
	last.desired, last.next = desired, time.Now().Add(RetryInterval)
	switch {
	case err == nil, ctx.Err() != nil,
		// It is gone, or another has its name, as its watch will show.
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
		r.Logger.Warn("pod could not be told of its images; it is tried again", "pod", name.String(), "status", desired.status, "reason", desired.reason, "err", err)
	}
}
