// Package condition keeps the condition PodImageReady of the node's pods up to date. It compares
// the pods of the watch with the state of their pre-pulls, and patches the differences while the
// cloud can be reached. A patch that was lost, or that the cache accepted during an outage, is
// therefore sent again.
package condition

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/backoff"
	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// RetryInterval is when a patch is repeated whose effect the watch does not show. The backoff
	// of patches that fail starts with it.
	RetryInterval = 10 * time.Second
	// SettleInterval collects changes that come together.
	SettleInterval = 200 * time.Millisecond
)

// Cloud accepts patches.
type Cloud interface {
	// PatchStatus sends a strategic merge patch.
	PatchStatus(ctx context.Context, pod types.NamespacedName, patch []byte) error
}

// Queue has the state of pre-pulls.
type Queue interface {
	// StateOf returns false for a pod without a pre-pull.
	StateOf(pod types.UID) (api.ImagePull, bool)
	// Changed returns a channel that is closed at the next change, also of pods.
	Changed() <-chan struct{}
}

// Options are the options of New. All are required.
type Options struct {
	Cloud Cloud
	Queue Queue
	// Pods returns the node's pods as the watch last showed them. They are read-only.
	Pods func() map[types.UID]*corev1.Pod
	// Online reports whether the cloud can be reached.
	Online func() bool
	Logger *slog.Logger
}

// Reporter reports pre-pulls in the conditions of pods. All methods except Run are safe for
// concurrent use.
type Reporter struct {
	Options

	// mu is held while Pods is called, so that a revision that has just been suppressed is not
	// deleted because an older list lacks its pod.
	mu         sync.Mutex
	suppressed map[types.UID]string // revisions for which pods must not have a condition

	// Both channels have room for one message, which stands for any number of them.
	wake, returned chan struct{}
}

// New returns a Reporter. It starts nothing.
func New(o Options) *Reporter {
	return &Reporter{
		Options: o, suppressed: map[types.UID]string{},
		wake: make(chan struct{}, 1), returned: make(chan struct{}, 1),
	}
}

// lastReport is the last patch of a pod's condition.
type lastReport struct {
	desired  condition
	next     time.Time // when it may be repeated
	failures int       // in a row
	err      string
}

// Run keeps the conditions up to date until ctx ends.
func (r *Reporter) Run(ctx context.Context) {
	reports := map[types.UID]*lastReport{}
	for {
		changed := r.Queue.Changed()
		var later <-chan time.Time
		if r.reportAll(ctx, reports) {
			later = time.After(RetryInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-r.wake:
		case <-r.returned:
			clear(reports)
		case <-later:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(SettleInterval):
		}
	}
}

// reportAll patches the pods whose condition differs, and reports whether there are any.
func (r *Reporter) reportAll(ctx context.Context, reports map[types.UID]*lastReport) (pending bool) {
	for uid, pod := range r.pods(reports) {
		desired, current, ok := r.difference(pod)
		if !ok {
			continue
		}
		pending = true
		last := reports[uid]
		if last == nil {
			last = &lastReport{}
			reports[uid] = last
		}
		early := time.Now().Before(last.next) && (last.desired == desired || last.failures > 0)
		if !early && r.Online() {
			r.report(ctx, pod, desired, current, last)
		}
	}
	return pending
}

// pods returns the node's pods, and deletes what is recorded for others.
func (r *Reporter) pods(reports map[types.UID]*lastReport) map[types.UID]*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods := r.Pods()
	maps.DeleteFunc(r.suppressed, func(uid types.UID, _ string) bool { return pods[uid] == nil })
	maps.DeleteFunc(reports, func(uid types.UID, _ *lastReport) bool { return pods[uid] == nil })
	return pods
}

// difference returns the desired and the current condition of a pod, and whether it must be
// patched.
func (r *Reporter) difference(pod *corev1.Pod) (desired, current condition, differ bool) {
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
		// The pod is gone, or another has its name; the watch will show it.
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

// CloudReturned repeats all patches whose effect the watch does not show: they may be lost.
func (r *Reporter) CloudReturned() { notify(r.returned) }

// Suppress removes a pod's condition until its target changes, and reports whether the pod has a
// condition of the hub. Call it before a pre-pull is cancelled.
func (r *Reporter) Suppress(name types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid, pod := range r.Pods() {
		if pod.Namespace != name.Namespace || pod.Name != name.Name {
			continue
		}
		current, ours := currentOf(pod)
		if t, ok, err := api.TargetOf(pod); ok && err == nil {
			r.suppressed[uid] = t.Revision
			notify(r.wake)
			return ours && current != (condition{})
		}
	}
	return false
}

// Unsuppress undoes Suppress.
func (r *Reporter) Unsuppress(pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.suppressed, pod)
}

func (r *Reporter) suppressedFor(pod types.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.suppressed[pod]
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
