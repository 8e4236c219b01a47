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

// tellNodes has the pods that plan names tell their nodes to pull images, and no
// other pod say anything. At most a burst of them is patched, so that deletions do
// not wait for thousands; the next step goes on with the others.
func (r *reconciler) tellNodes(ctx context.Context, key cache.ObjectName, ds *appsv1.DaemonSet, t *tracked,
	target upgrade.Target, plan *rollout.Plan, pods []*corev1.Pod, now time.Time) error {
	changes := t.retries.ofDue(planTold(target, plan, pods, t.rolling.sent, now), pods, now)
	if len(plan.Pulls)+len(changes) > 0 {
		t.marked = forHubs
	}
	if len(changes) > rollout.Burst {
		changes = changes[:rollout.Burst]
		r.queue.Add(key)
	}
	done := r.apply(ctx, changes)
	t.watch.wrote(done.changed)
	r.wake(key, t.retries.took(&done, time.Now()), time.Now())
	if ctx.Err() == nil {
		r.tellTold(ds, t, target.Revision, done)
	}
	return done.stuck()
}

// planTold returns the changes that bring the pods' conditions in line with the plan. It
// leaves alone pods that are being deleted, and pods whose deletion failed: the next step
// determines the conditions of those.
func planTold(target upgrade.Target, plan *rollout.Plan, pods []*corev1.Pod, sent *deletions, now time.Time) []change {
	var changes []change
	dates := newDated(target)
	tried := map[types.UID]bool{}
	for _, d := range plan.Delete {
		tried[d.Pod.UID] = true
	}
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() || sent.has(pod.UID) || tried[pod.UID] {
			continue
		}
		var want mark
		if from, ok := plan.Pulls[pod.UID]; ok {
			want.target = dates.encode(from)
		}
		if patch := patchTo(want, pod, now); patch != nil {
			changes = append(changes, change{pod: pod, patch: patch})
		}
	}
	return changes
}

// tellTold is silent on the DaemonSet unless something failed: that a rollout began
// with its images is told with its start.
func (r *reconciler) tellTold(ds *appsv1.DaemonSet, t *tracked, revision string, done outcome) {
	r.tellFailure(ds, t, done)
	if len(done.changed) > 0 {
		r.log.Info("pods tell their nodes which images to pull, or no longer do",
			"daemonset", ds.Namespace+"/"+ds.Name, "revision", revision, "changed", len(done.changed))
	}
}
