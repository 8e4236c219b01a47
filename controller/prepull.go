package controller

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// requestPrepulls has the pods in the plan's Pulls ask their nodes to pull images, and no
// other pod. At most a burst of them is patched, so that deletions do not wait for
// thousands; the next step goes on with the others.
func (s *step) requestPrepulls(ctx context.Context) error {
	patches := s.ready(prepullPatches(s.target, &s.plan, s.pods, s.state.rollout.expected.has, s.now), s.pods, s.now)
	if len(s.plan.Pulls)+len(patches) > 0 {
		s.state.marked = prepullMarks
	}
	if len(patches) > rollout.Burst {
		patches = patches[:rollout.Burst]
		s.queue.Add(s.key)
	}
	done := s.patchPods(ctx, patches)
	if ctx.Err() == nil {
		s.events.prepulls(s.ds, &s.state.reported, s.target.Revision, done, s.state.podBackoff.waiting())
	}
	return done.errIfNone()
}

// prepullPatches returns the patches that bring the pods' conditions in line with the plan. It
// leaves alone pods that are being deleted, and pods whose deletion failed: the next step
// determines the conditions of those.
func prepullPatches(target upgrade.Target, plan *rollout.Plan, pods []*corev1.Pod, deleted func(types.UID) bool, now time.Time) []podPatch {
	var changes []podPatch
	dates := newPrepullTarget(target)
	tried := map[types.UID]bool{}
	for _, d := range plan.Delete {
		tried[d.Pod.UID] = true
	}
	for _, pod := range pods {
		if !pod.DeletionTimestamp.IsZero() || deleted(pod.UID) || tried[pod.UID] {
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
