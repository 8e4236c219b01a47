package controller

import (
	"context"
	"maps"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// key names a workload.
type key struct {
	kind workload.Kind
	cache.ObjectName
}

// queue holds the workloads to reconcile. It hands out a key to one worker at a time, and
// accepts it again meanwhile.
type queue = workqueue.TypedDelayingInterface[key]

func newQueue(metrics workqueue.MetricsProvider) queue {
	return workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[key]{Name: Name, MetricsProvider: metrics})
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

func (r *reconciler) workOn(ctx context.Context, key key) {
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
	case err != nil: // t is not nil: only a workload with a state is reconciled
		wait := t.retry.WorkloadFailed(time.Now())
		r.log.Error("workload could not be reconciled; it is retried with backoff",
			key.kind.Lower(), key.String(), "failures", t.retry.Failures, "wait", wait, "err", err)
		r.queue.AddAfter(key, wait)
	case t != nil:
		t.retry = backoff.Retry{}
	}
}

// retryDelay is how long a workload must be left alone because it could not be
// reconciled; 0 or less is no wait. Changes of pods and nodes, of which there may be
// hundreds a second, do not end the wait. A change of what the workload itself asks for
// does: whoever made it waits to see what it does.
func (r *reconciler) retryDelay(key key, now time.Time) time.Duration {
	t := r.states.get(key)
	if t == nil {
		return 0
	}
	o := r.find(key)
	if o == nil || !sameSpec(t.object, o) {
		return 0
	}
	return t.retry.Until.Sub(now)
}

func sameSpec(a, b workload.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		a.GetDeletionTimestamp().IsZero() == b.GetDeletionTimestamp().IsZero()
}
