package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
)

// applyStatefulSet is apply for a StatefulSet, which may ask for OTA only. It has no conditions, but
// Events: the StatefulSet controller of earlier releases removes conditions of others whenever it
// writes the status. That of Kubernetes 1.37 keeps them (updateStatefulSet in stateful_set_control.go).
func (s *scope) applyStatefulSet(ctx context.Context, sts *appsv1.StatefulSet, wanted daemonset.Strategy, problem string) (err error) {
	if s.options, err = optionsOf(s.object, wanted); err != nil {
		problem = err.Error()
	}
	s.events.Problem(s.object, &s.state.reported, problem)
	switch {
	case wanted == daemonset.Unmanaged:
		if err := s.unmarkPods(ctx, false, ""); err != nil {
			return err
		}
		s.state.stopOwned()
		if problem == "" {
			s.forget(s.key)
		}
		return nil
	case problem != "":
		return nil
	default:
		s.events.Ordered(sts, &s.state.reported)
		return s.markPods(ctx)
	}
}
