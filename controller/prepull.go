package controller

import (
	"context"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
)

// requestPrepulls has the pods in the plan's Pulls ask their nodes to pull images, and no
// other pod. At most a burst of them is patched, so that deletions do not wait for
// thousands; the next step goes on with the others.
func (s *step) requestPrepulls(ctx context.Context) error {
	patches := s.ready(status.PrepullPatches(s.target, &s.plan, s.pods, s.state.rollout.expected.Has, s.now), s.pods, s.now)
	if len(s.plan.Pulls)+len(patches) > 0 {
		s.state.marked = prepullMarks
	}
	if len(patches) > rollout.Burst {
		patches = patches[:rollout.Burst]
		s.queue.Add(s.key)
	}
	done := s.patchPods(ctx, patches)
	if ctx.Err() == nil {
		s.events.Prepulls(s.ds, &s.state.reported, s.target.Revision, done, len(s.state.patchBackoff) > 0)
	}
	return done.ErrIfNone()
}
