package controller

import (
	"context"
	"time"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/status"
)

// markPods carries out the strategy OTA. With Options.Prepull, nodes pull the images
// before their owners ask.
func (s *scope) markPods(ctx context.Context) error {
	w, err := s.ownedWatch(ctx)
	if err != nil {
		return err
	}
	if !w.Synced() {
		return nil // it calls when it is
	}
	s.state.marked = otaMarks
	revision := daemonset.NewestRevision(s.ds, w.Revisions())
	if revision == nil {
		return nil // the DaemonSet or a revision will change
	}
	target, err := daemonset.TargetOf(revision)
	if err != nil {
		return err
	}
	target.MinReadySeconds = s.ds.Spec.MinReadySeconds
	now, m := time.Now(), status.NewMarker(target)
	if s.options.Prepull {
		m = status.NewPrepullMarker(target, now)
	}
	pods := w.ActivePods(s.ds)
	p := status.PlanMarks(m, pods, now)
	s.metrics.setPods(s.key, p.Need, p.Total-p.Need)
	done := s.patchPods(ctx, s.ready(p.Patches, pods, now))
	if ctx.Err() == nil {
		s.events.Marked(s.ds, &s.state.reported, target.Revision, p, done, len(s.state.patchBackoff) > 0)
	}
	return done.ErrIfNone()
}
