package controller

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// requestPrepulls has the pods that plan names tell their nodes to pull images, and no
// other pod say anything. At most a burst of them is patched, so that deletions do
// not wait for thousands; the next step goes on with the others.
func (r *reconciler) requestPrepulls(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *state,
	target upgrade.Target, plan *rollout.Plan, pods []*corev1.Pod, now time.Time) error {
	changes := t.podBackoff.filter(prepullPatches(target, plan, pods, t.rolloutState.expected, now), pods, now)
	if len(plan.Pulls)+len(changes) > 0 {
		t.marked = prepullMarks
	}
	if len(changes) > rollout.Burst {
		changes = changes[:rollout.Burst]
		r.queue.Add(key)
	}
	done := r.apply(ctx, changes)
	t.watch.wrote(done.changed)
	r.wakeAt(key, t.podBackoff.took(&done, time.Now()), time.Now())
	if ctx.Err() == nil {
		r.reportPrepulls(ds, t, target.Revision, done)
	}
	return done.errIfNone()
}

// prepullPatches returns the changes that bring the pods' conditions in line with the plan. It
// leaves alone pods that are being deleted, and pods whose deletion failed: the next step
// determines the conditions of those.
func prepullPatches(target upgrade.Target, plan *rollout.Plan, pods []*corev1.Pod, expected *expectations, now time.Time) []podPatch {
	var changes []podPatch
	dates := newPrepullTarget(target)
	tried := map[types.UID]bool{}
	for _, d := range plan.Delete {
		tried[d.Pod.UID] = true
	}
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() || expected.has(pod.UID) || tried[pod.UID] {
			continue
		}
		var want mark
		if from, ok := plan.Pulls[pod.UID]; ok {
			want.target = dates.encode(from)
		}
		if patch := markPatch(want, pod, now); patch != nil {
			changes = append(changes, podPatch{pod: pod, patch: patch})
		}
	}
	return changes
}

// reportPrepulls is silent on the DaemonSet unless something failed: that a rollout began
// with its images is told with its start.
func (r *reconciler) reportPrepulls(ds *appsv1.DaemonSet, t *state, revision string, done patchResult) {
	r.reportPatchFailure(ds, t, done)
	if len(done.changed) > 0 {
		r.log.Info("pods tell their nodes which images to pull, or no longer do",
			"daemonset", ds.Namespace+"/"+ds.Name, "revision", revision, "changed", len(done.changed))
	}
}
