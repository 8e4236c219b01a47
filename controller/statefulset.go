package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// applyStatefulSet is apply for a StatefulSet, which may ask for OTA only. It has no conditions, but
// Events: the StatefulSet controller of earlier releases removes conditions of others whenever it
// writes the status. That of Kubernetes 1.37 keeps them (updateStatefulSet in stateful_set_control.go).
func (s *scope) applyStatefulSet(ctx context.Context, sts *appsv1.StatefulSet, wanted daemonset.Strategy, problem string) (err error) {
	if s.options, err = s.optionsOf(s.object, wanted); err != nil {
		problem = err.Error()
	}
	s.events.Problem(s.object, &s.state.reported, problem)
	switch {
	case wanted == daemonset.Unmanaged:
		if err := s.unmarkPods(ctx, false, ""); err != nil {
			return err
		}
		s.state.stopOwned()
		if err := s.say(ctx, nil, &rollout.Report{}); err != nil {
			return err
		}
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

// lackingOf returns the pods of a StatefulSet that were there, and that Kubernetes has not made again. Those that have
// never been there do not count: they may have to wait for others.
func (s *scope) lackingOf(sts *appsv1.StatefulSet, pods []*corev1.Pod, now time.Time) []lack {
	there, before := map[string]bool{}, s.state.seen
	for _, pod := range pods {
		there[pod.Name] = true
	}
	s.state.seen = map[string]time.Time{}
	var lacking []lack
	for _, name := range rollout.PodNames(sts, func(name string) bool { return there[name] }) {
		since, seen := before[name]
		switch {
		case there[name]:
			s.state.seen[name] = time.Time{}
		case seen:
			if since.IsZero() {
				since = now
			}
			s.state.seen[name] = since
			lacking = append(lacking, lack{pod: name, since: since})
		}
	}
	return lacking
}

// lacksOf names the first missing pod of a StatefulSet, for messages; "" if none has been missing for rollout.LackGrace.
func lacksOf(lacking []lack, why string, now time.Time) string {
	for _, l := range lacking {
		if now.Sub(l.since) < rollout.LackGrace {
			continue
		}
		text := fmt.Sprintf("Kubernetes has not made pod %s again for %v", l.pod, rollout.LackGrace)
		if why != "" {
			text += " (" + why + ")"
		}
		return text
	}
	return ""
}
