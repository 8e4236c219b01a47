package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// rolloutState is what is remembered of a DaemonSet that is rolled out by its nodes.
// Losing it delays the rollout and does no harm; see package rollout.
type rolloutState struct {
	seen     *rollout.Observations
	expected *expectations
	// confirmed is the newest revision as the apiserver itself said when
	// generation was new.
	confirmed      *appsv1.ControllerRevision
	generation     int64
	asked          map[string]bool // revisions of the pods that there were then
	rolloutHistory rolloutHistory
}

// advance carries out the strategy AdvancedRollingUpdate: one step of it.
func (r *reconciler) advance(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *state, options rollout.Options) error {
	w, err := r.watchFor(ctx, key, ds, t)
	if err != nil {
		return err
	}
	r.nodes.follow(ctx, key, func() { r.queue.AddAfter(key, t.throttle.wait(time.Now())) })
	if !w.synced() || !r.nodes.informer.HasSynced() {
		return nil // they call when they are
	}
	if t.rolloutState == nil {
		t.rolloutState = &rolloutState{seen: rollout.NewObservations(), expected: newExpectations()}
	}
	pods := w.allPods(ds)
	newest, err := r.targetRevision(ctx, ds, w, t.rolloutState, pods)
	if err != nil {
		return err
	}
	if newest == nil { // the DaemonSet or a revision will change
		return r.setConditions(ctx, key, ds, t, forRollout(ds, rollout.AwaitRevision()...))
	}
	target, err := targetOf(newest)
	if err != nil {
		return err
	}
	return r.step(ctx, key, ds, t, options, target, pods)
}

// step deletes what is to be deleted now, tells nodes which images to pull, and says
// where everything stands.
func (r *reconciler) step(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *state, options rollout.Options, target upgrade.Target, pods []*corev1.Pod) error {
	now, expected := time.Now(), t.rolloutState.expected
	again := expected.observed(pods, now)
	plan := r.planOf(ds, t, options, target, pods, now)
	t.throttle.took(now, time.Now())
	for _, d := range plan.Delete {
		r.log.Info("pod is deleted, to be replaced by one of the new revision",
			"daemonset", key.String(), "revision", target.Revision, "node", rollout.NodeOf(d.Pod), "pod", d.Pod.Name, "why", d.Reason)
	}
	done := r.deletePods(ctx, expected, append(again, plan.Delete...))
	if err := ctx.Err(); err != nil {
		return err
	}
	revertFailed(&plan, expected)
	untold := r.requestPrepulls(ctx, key, ds, t, target, &plan, pods, now)
	if err := ctx.Err(); err != nil {
		return err
	}
	r.wakeAt(key, expected.next(now), now) // the watch may have no event for a pod that was kept
	r.wakeAt(key, plan.Wake, now)
	r.metrics.setRollout(key, &plan)
	r.reportRollout(ds, t, &plan, options, now)
	r.reportDeletions(ds, t, &plan, done)
	return errors.Join(done.err(), untold, r.setConditions(ctx, key, ds, t, forRollout(ds, rollout.Conditions(&plan)...)))
}

func (r *reconciler) planOf(ds *appsv1.DaemonSet, t *state, options rollout.Options, target upgrade.Target, pods []*corev1.Pod, now time.Time) rollout.Plan {
	expected := t.rolloutState.expected
	return rollout.NewPlan(rollout.Input{
		DaemonSet: ds, Options: options, Revision: target.Revision,
		Nodes: r.nodes.seen(), Pods: pods,
		Deleted: expected.has, Refused: expected.refusal, RefusedInARow: expected.refusalsInARow(),
		Observations: t.rolloutState.seen, Halted: rollout.HaltedRevision(ds),
		Now: now, Timing: r.timing,
	})
}

// revertFailed makes a plan, which takes its deletions for done, one of what was done.
func revertFailed(plan *rollout.Plan, expected *expectations) {
	for _, d := range plan.Delete {
		if !expected.has(d.Pod.UID) {
			if refusal := expected.refusal(d.Pod.UID); refusal != nil {
				plan.Revert(d, refusal)
			}
		}
	}
	plan.RefusedInARow = expected.refusalsInARow()
}

// wakeAt has the DaemonSet looked at again at a time, if that is not zero.
func (r *reconciler) wakeAt(key cache.ObjectName, at, now time.Time) {
	if !at.IsZero() {
		r.queue.AddAfter(key, at.Sub(now))
	}
}

// targetRevision returns the revision that the pods should have, nil while it is not known.
//
// That Kubernetes has seen the newest template can be known here before its
// revision is, since they come by two watches. For that moment the revision
// before would be the newest, and new pods would be deleted for being none of it.
// So once for each generation the apiserver itself is asked, and once for each revision
// that pods have and nobody has heard of here: then it is the watches of the DaemonSet and
// of its revisions that are late.
func (r *reconciler) targetRevision(ctx context.Context, ds *appsv1.DaemonSet, w *watch, t *rolloutState, pods []*corev1.Pod) (*appsv1.ControllerRevision, error) {
	if ds.Status.ObservedGeneration < ds.Generation {
		return nil, nil
	}
	revisions := w.revisionList()
	if t.confirmed != nil {
		revisions = append(revisions, t.confirmed)
	}
	if t.generation != ds.Generation || t.confirmed == nil || t.hasUnknown(pods, revisions) {
		list, err := r.client.AppsV1().ControllerRevisions(ds.Namespace).List(ctx, metav1.ListOptions{LabelSelector: w.selector.String()})
		if err != nil {
			return nil, fmt.Errorf("list ControllerRevisions: %w", err)
		}
		var confirmed []*appsv1.ControllerRevision
		for i := range list.Items {
			confirmed = append(confirmed, &list.Items[i])
		}
		t.confirmed, t.generation = daemonset.NewestRevision(ds, confirmed), ds.Generation
		t.asked = hashesOf(pods)
		if t.confirmed != nil {
			revisions = append(revisions, t.confirmed)
		}
	}
	return daemonset.NewestRevision(ds, revisions), nil
}

// hasUnknown reports whether any pod has a revision that is not among revisions, and that
// the apiserver has not been asked for yet.
func (t *rolloutState) hasUnknown(pods []*corev1.Pod, revisions []*appsv1.ControllerRevision) bool {
	known := map[string]bool{}
	for _, revision := range revisions {
		known[revision.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	for _, pod := range pods {
		if hash := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; !known[hash] && !t.asked[hash] {
			return true
		}
	}
	return false
}

// hashesOf returns the revisions of pods.
func hashesOf(pods []*corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for _, pod := range pods {
		out[pod.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	return out
}

// stopRollout forgets a rollout that is no longer asked for.
func (r *reconciler) stopRollout(key cache.ObjectName, t *state) {
	t.rolloutState = nil
	r.nodes.unsubscribe(key)
	r.metrics.forgetRollout(key)
}
