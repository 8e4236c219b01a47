package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// queue holds the DaemonSets that are to be looked at. It hands out a key to one
// worker at a time, and takes it in again meanwhile.
type queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

// backoff computes when a DaemonSet may be reconciled again after a failure.
type backoff = workqueue.TypedRateLimiter[cache.ObjectName]

func newBackoff() backoff {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minBackoff, maxBackoff)
}

func newQueue(b backoff, metrics workqueue.MetricsProvider) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(b,
		workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: Name, MetricsProvider: metrics})
}

// reconciler is a running Controller.
type reconciler struct {
	client     kubernetes.Interface
	daemonSets appslisters.DaemonSetLister
	queue      queue
	backoff    backoff // the queue's
	events     *events
	metrics    *metrics
	log        *slog.Logger
	patches    int
	timing     rollout.Timing
	nodes      *nodes
	states     *states
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

// reconcile brings one DaemonSet's pods to where they should be.
func (r *reconciler) reconcile(ctx context.Context, key cache.ObjectName) error {
	ds, err := r.daemonSets.DaemonSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		r.forget(key)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read DaemonSet: %w", err)
	}
	if !ds.DeletionTimestamp.IsZero() {
		r.forget(key) // its pods go with it
		return nil
	}
	if t := r.states.get(key); t != nil && t.ds.UID != ds.UID {
		r.forget(key) // what is known is about another DaemonSet of the same name
	}
	wanted, problem := daemonset.StrategyOf(ds)
	if wanted == daemonset.Unmanaged && problem == "" && r.states.get(key) == nil && !hasOwned(ds) {
		return nil // by far the most of them
	}
	return r.follow(ctx, key, ds, wanted, problem)
}

// follow does what ds asks for, and undoes what it no longer asks for.
func (r *reconciler) follow(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, wanted daemonset.Strategy, problem string) error {
	t := r.states.getOrAdd(key)
	t.ds = ds
	options, err := optionsOf(ds, wanted)
	if err != nil {
		problem = err.Error()
	}
	r.reportProblem(ds, t, problem)
	switch {
	case wanted == daemonset.Unmanaged:
		return r.cleanup(ctx, key, ds, t, problem)
	case problem != "":
		return r.setConditions(ctx, key, ds, t, invalid(ds, problem))
	case wanted == daemonset.OTA:
		r.stopRollout(key, t)
		return errors.Join(
			r.markPods(ctx, key, ds, t, options.Prepull),
			r.setConditions(ctx, key, ds, t, removing(accepted(ds), rolloutTypes[:]...)),
		)
	default:
		if t.marked == otaMarks {
			if err := r.unmarkPods(ctx, key, ds, t, options.Prepull); err != nil {
				return err
			}
		}
		return r.advance(ctx, key, ds, t, options)
	}
}

// optionsOf reads those annotations that count with the strategy.
func optionsOf(ds *appsv1.DaemonSet, wanted daemonset.Strategy) (o rollout.Options, err error) {
	switch wanted {
	case daemonset.AdvancedRollingUpdate:
		return rollout.ParseOptions(ds.Annotations)
	case daemonset.OTA:
		o.Prepull, err = rollout.ParsePrepull(ds.Annotations)
	}
	return o, err
}

// cleanup undoes everything on a DaemonSet that asks for nothing, or for something
// that Kubernetes does itself.
func (r *reconciler) cleanup(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *state, problem string) error {
	r.stopRollout(key, t)
	if err := r.unmarkPods(ctx, key, ds, t, false); err != nil {
		return err
	}
	if t.watch != nil {
		t.watch.stop()
		t.watch = nil
	}
	if problem != "" {
		want := conditions{}
		want.set(rollout.Invalid(problem))
		return r.setConditions(ctx, key, ds, t, removing(want, rolloutTypes[:]...))
	}
	if err := r.setConditions(ctx, key, ds, t, removing(conditions{}, ownedTypes[:]...)); err != nil {
		return err
	}
	r.forget(key)
	return nil
}

// markPods carries out the strategy OTA. With prepull, nodes pull the images before
// their owners ask.
func (r *reconciler) markPods(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *state, prepull bool) error {
	w, err := r.watchFor(ctx, key, ds, t)
	if err != nil {
		return err
	}
	if !w.synced() {
		return nil // it calls when it is
	}
	t.marked = otaMarks
	revision := daemonset.NewestRevision(ds, w.revisionList())
	if revision == nil {
		return nil // the DaemonSet or a revision will change
	}
	target, err := targetOf(revision)
	if err != nil {
		return err
	}
	target.MinReadySeconds = ds.Spec.MinReadySeconds
	now, m := time.Now(), newMarker(target)
	if prepull {
		m = newPrepullMarker(target, now)
	}
	pods := w.activePods(ds)
	p := planMarks(m, pods, now)
	r.metrics.setPods(key, p.need, p.total-p.need)
	done := r.apply(ctx, t.podBackoff.filter(p.changes, pods, now))
	w.wrote(done.changed)
	r.wakeAt(key, t.podBackoff.took(&done, time.Now()), time.Now())
	if ctx.Err() == nil {
		r.reportMarked(ds, t, target.Revision, p, done)
	}
	return done.errIfNone()
}

// watchFor returns the watch of ds, started if need be.
func (r *reconciler) watchFor(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *state) (*watch, error) {
	if t.watch != nil && t.watch.matches(ds) {
		return t.watch, nil
	}
	if t.watch != nil {
		t.watch.stop()
		t.watch = nil
	}
	w, err := startOwned(ctx, r.client, ds, func() { r.queue.AddAfter(key, t.throttle.wait(time.Now())) })
	if err != nil {
		return nil, err
	}
	t.watch = w
	return w, nil
}

// forget lets go of everything that is kept of a DaemonSet.
func (r *reconciler) forget(key cache.ObjectName) {
	if t := r.states.remove(key); t != nil {
		if t.watch != nil {
			t.watch.stop()
		}
		r.stopRollout(key, t)
	}
	r.metrics.forgetPods(key)
	r.queue.Forget(key)
}

// stop is called when no worker runs any more.
func (r *reconciler) stop() {
	for _, key := range r.states.keys() {
		r.forget(key)
	}
	r.nodes.running.Wait()
}

// plan is what is to be done with the pods of a DaemonSet.
type plan struct {
	changes []podPatch
	// need of total pods need an upgrade.
	need, total int
}

func planMarks(m marker, pods []*corev1.Pod, now time.Time) plan {
	p := plan{total: len(pods)}
	for _, pod := range pods {
		if m.needsUpgrade(pod) {
			p.need++
		}
		if patch := markPatch(m.markFor(pod), pod, now); patch != nil {
			p.changes = append(p.changes, podPatch{pod: pod, patch: patch})
		}
	}
	return p
}
