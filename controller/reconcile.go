package controller

import (
	"context"
	"errors"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/events"
	"github.com/edgehub-io/edgehub/controller/informer"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
)

// reconciler is a running Controller.
type reconciler struct {
	client     kubernetes.Interface
	daemonSets appslisters.DaemonSetLister
	queue      queue
	podClient  *podclient.Client
	events     *events.Recorder
	metrics    *metrics
	log        *slog.Logger
	timing     rollout.Timing
	nodes      *informer.Nodes
	states     *states
}

// reconcile brings one DaemonSet's pods to where they should be.
func (r *reconciler) reconcile(ctx context.Context, key cache.ObjectName) error {
	ds, _ := r.daemonSets.DaemonSets(key.Namespace).Get(key.Name) // not found is the only error
	if ds == nil || !ds.DeletionTimestamp.IsZero() {
		r.forget(key) // its pods go with it
		return nil
	}
	if t := r.states.get(key); t != nil && t.ds.UID != ds.UID {
		r.forget(key) // what is known is about another DaemonSet of the same name
	}
	wanted, problem := daemonset.StrategyOf(ds)
	if wanted == daemonset.Unmanaged && problem == "" && r.states.get(key) == nil && status.OwnedConditions(ds) == nil {
		return nil // by far the most of them
	}
	s := &scope{reconciler: r, key: key, ds: ds, state: r.states.getOrAdd(key)}
	s.state.ds = ds
	return s.apply(ctx, wanted, problem)
}

// apply does what the DaemonSet asks for, and undoes what it no longer asks for.
func (s *scope) apply(ctx context.Context, wanted daemonset.Strategy, problem string) (err error) {
	if s.options, err = optionsOf(s.ds, wanted); err != nil {
		problem = err.Error()
	}
	s.events.Problem(s.ds, &s.state.reported, problem)
	switch {
	case wanted == daemonset.Unmanaged:
		return s.cleanup(ctx, problem)
	case problem != "":
		return s.setConditions(ctx, status.ForInvalid(s.ds, problem))
	case wanted == daemonset.OTA:
		s.stopRollout(s.key, s.state)
		return errors.Join(
			s.markPods(ctx),
			s.setConditions(ctx, status.Accepted(s.ds).RemoveRollout()),
		)
	default:
		if s.state.marked == otaMarks {
			if err := s.unmarkPods(ctx, s.options.Prepull, s.options.Policy.Encode()); err != nil {
				return err
			}
		}
		return s.advance(ctx)
	}
}

// optionsOf reads those annotations that count with the strategy.
func optionsOf(ds *appsv1.DaemonSet, wanted daemonset.Strategy) (rollout.Options, error) {
	switch wanted {
	case daemonset.AdvancedRollingUpdate:
		return rollout.ParseOptions(ds.Annotations)
	case daemonset.OTA:
		return rollout.ParseOTA(ds.Annotations)
	default:
		return rollout.Options{}, nil
	}
}
