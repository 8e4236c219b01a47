package controller

import (
	"context"
	"time"

	"github.com/edgehub-io/edgehub/controller/daemonset"
)

// markPods carries out the strategy OTA. With Options.Prepull, nodes pull the images
// before their owners ask.
func (s *scope) markPods(ctx context.Context) error {
	w, err := s.ownedWatch(ctx)
	if err != nil {
		return err
	}
	if !w.synced() {
		return nil // it calls when it is
	}
	s.state.marked = otaMarks
	revision := daemonset.NewestRevision(s.ds, w.revisionList())
	if revision == nil {
		return nil // the DaemonSet or a revision will change
	}
	target, err := targetOf(revision)
	if err != nil {
		return err
	}
	target.MinReadySeconds = s.ds.Spec.MinReadySeconds
	now, m := time.Now(), newMarker(target)
	if s.options.Prepull {
		m = newPrepullMarker(target, now)
	}
	pods := w.activePods(s.ds)
	p := planMarks(m, pods, now)
	s.metrics.setPods(s.key, p.need, p.total-p.need)
	done := s.patchPods(ctx, s.ready(p.changes, pods, now))
	if ctx.Err() == nil {
		s.events.marked(s.ds, &s.state.reported, target.Revision, p, done, s.state.podBackoff.waiting())
	}
	return done.errIfNone()
}
