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
type queue = workqueue.TypedDelayingInterface[cache.ObjectName]

func newQueue(metrics workqueue.MetricsProvider) queue {
	return workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Name: Name, MetricsProvider: metrics})
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
		return // the controller stops, which is not a failure
	}
	r.metrics.reconciled(err)
	t := r.states.get(key)
	switch {
	case err != nil: // t is not nil: only a DaemonSet with a state is reconciled
		wait := t.retry.DaemonSetFailed(time.Now())
		r.log.Error("DaemonSet could not be reconciled; it is retried with backoff",
			"daemonset", key.String(), "failures", t.retry.Failures, "wait", wait, "err", err)
		r.queue.AddAfter(key, wait)
	case t != nil:
		t.retry = backoff.Retry{}
	}
}

// retryDelay is how long a DaemonSet must be left alone because it could not be
// reconciled; 0 or less is no wait. Changes of pods and nodes, of which there may be
// hundreds a second, do not end the wait. A change of what the DaemonSet itself asks for
// does: whoever made it waits to see what it does.
func (r *reconciler) retryDelay(key cache.ObjectName, now time.Time) time.Duration {
	t := r.states.get(key)
	if t == nil {
		return 0
	}
	ds, err := r.daemonSets.DaemonSets(key.Namespace).Get(key.Name)
	if err != nil || !sameSpec(t.ds, ds) {
		return 0
	}
	return t.retry.Until.Sub(now)
}

func sameSpec(a, b *appsv1.DaemonSet) bool {
	return a.UID == b.UID && a.Generation == b.Generation && maps.Equal(a.Annotations, b.Annotations) &&
		a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero()
}
