package controller

import (
	"context"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/edgehub-io/edgehub/controller/backoff"
)

// queue holds the DaemonSets to reconcile. It hands out a key to one worker at a time, and
// accepts it again meanwhile.
type queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

func newQueue(b backoff.DaemonSets, metrics workqueue.MetricsProvider) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(b,
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: Name, MetricsProvider: metrics})
}

// work takes keys until the queue is shut down.
func (r *reconciler) work(ctx context.Context) {
	for {
		key, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		r.workOn(ctx, key)
	}
}

func (r *reconciler) workOn(ctx context.Context, key cache.ObjectName) {
	defer r.queue.Done(key)
	if ctx.Err() != nil {
		return
	}
	if wait := r.retryDelay(key, time.Now()); wait > 0 {
		r.queue.AddAfter(key, wait)
		return
	}
	err := r.reconcile(ctx, key)
	if err != nil && ctx.Err() != nil {
		return // cut short, and no failure
	}
	r.metrics.reconciled(err)
	if err == nil {
		r.succeeded(key)
		return
	}
	wait := r.failed(key, time.Now())
	r.log.Error("DaemonSet could not be reconciled; it is retried with backoff",
		"daemonset", key.String(), "failures", r.queue.NumRequeues(key), "wait", wait, "err", err)
	r.queue.AddAfter(key, wait)
}

// retryDelay is how long a DaemonSet must be left alone because it could not be
// reconciled; 0 or less is not at all. Changes of pods and nodes, of which there may be
// hundreds a second, do not end the wait. A change of what the DaemonSet itself asks for
// does: whoever made it waits to see what it does.
func (r *reconciler) retryDelay(key cache.ObjectName, now time.Time) time.Duration {
	t := r.states.get(key)
	if t == nil || !t.until.After(now) {
		return 0
	}
	ds, err := r.daemonSets.DaemonSets(key.Namespace).Get(key.Name)
	if err != nil || !sameSpec(t.ds, ds) {
		return 0
	}
	return t.until.Sub(now)
}

// failed returns when the DaemonSet is to be tried again.
func (r *reconciler) failed(key cache.ObjectName, now time.Time) time.Duration {
	wait := r.backoff.When(key)
	if t := r.states.get(key); t != nil {
		t.until = now.Add(wait)
	}
	return wait
}

// succeeded ends the wait, which a change of the DaemonSet may have cut short.
func (r *reconciler) succeeded(key cache.ObjectName) {
	r.backoff.Forget(key)
	if t := r.states.get(key); t != nil {
		t.until = time.Time{}
	}
}

func sameSpec(a, b *appsv1.DaemonSet) bool {
	return a.UID == b.UID && a.Generation == b.Generation && maps.Equal(a.Annotations, b.Annotations) &&
		a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero()
}
