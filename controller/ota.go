package controller

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
)

// markPods carries out the strategy OTA. With Options.Prepull, nodes pull the images
// before their owners ask.
func (s *scope) markPods(ctx context.Context) error {
	w, err := s.ownedWatch(ctx)
	if err != nil {
		return err
	}
	s.nodes.Subscribe(ctx, s.key, s.requeue())
	if !w.Synced() || !s.nodes.Synced() {
		return nil // they call when they are
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
	now, m := time.Now(), status.NewMarker(target, s.options.Policy, s.obstacles())
	if s.options.Prepull {
		m = status.NewPrepullMarker(target, s.options.Policy, s.obstacles(), now)
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

// obstacles returns a function that says why the node of a pod would get no pod of the new
// revision, which is the DaemonSet's template: NewestRevision has made sure of that.
func (s *scope) obstacles() func(*corev1.Pod) string {
	placement := rollout.NewPlacement(&s.ds.Spec.Template.Spec)
	nodes := sync.OnceValue(func() map[string]*corev1.Node { // most pods of a rollout do not ask
		out := map[string]*corev1.Node{}
		for _, node := range s.nodes.List() {
			out[node.Name] = node
		}
		return out
	})
	return func(pod *corev1.Pod) string {
		if node := nodes()[rollout.NodeOf(pod)]; node != nil {
			return placement.Obstacle(node)
		}
		return ""
	}
}
