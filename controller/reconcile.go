package controller

import (
	"context"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/events"
	"github.com/edgehub-io/edgehub/controller/informer"
	"github.com/edgehub-io/edgehub/controller/missing"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// reconciler is a running Controller.
type reconciler struct {
	client       kubernetes.Interface
	daemonSets   appslisters.DaemonSetLister
	statefulSets appslisters.StatefulSetLister
	queue        queue
	podClient    *podclient.Client
	successors   *successor.Asker
	missing      *missing.Reporter
	events       *events.Recorder
	metrics      *metrics
	log          *slog.Logger
	timing       rollout.Timing
	nodes        *informer.Nodes
	states       *states
}

// find returns a workload as the watch has it, nil if it is gone.
func (r *reconciler) find(key key) workload.Object {
	// Not found is the only error of a lister.
	if key.kind == workload.StatefulSet {
		if sts, err := r.statefulSets.StatefulSets(key.Namespace).Get(key.Name); err == nil {
			return sts
		}
	} else if ds, err := r.daemonSets.DaemonSets(key.Namespace).Get(key.Name); err == nil {
		return ds
	}
	return nil
}

// reconcile brings one workload's pods to where they should be.
func (r *reconciler) reconcile(ctx context.Context, key key) error {
	o := r.find(key)
	if o == nil || !o.GetDeletionTimestamp().IsZero() {
		r.forget(key) // its pods go with it
		return nil
	}
	if t := r.states.get(key); t != nil && t.object.GetUID() != o.GetUID() {
		r.forget(key) // what is known is about another workload of the same name
	}
	wanted, problem := workload.StrategyOf(o)
	ds, isDaemonSet := o.(*appsv1.DaemonSet)
	if wanted == daemonset.Unmanaged && problem == "" && r.states.get(key) == nil &&
		o.GetAnnotations()[api.ReportAnnotation] == "" && (!isDaemonSet || status.OwnedConditions(ds) == nil) {
		return nil // by far the most of them
	}
	s := &scope{reconciler: r, key: key, object: o, ds: ds, state: r.states.getOrAdd(key)}
	s.state.object = o
	if sts, ok := o.(*appsv1.StatefulSet); ok {
		return s.applyStatefulSet(ctx, sts, wanted, problem)
	}
	return s.apply(ctx, wanted, problem)
}

// apply does what the DaemonSet asks for, and undoes what it no longer asks for.
func (s *scope) apply(ctx context.Context, wanted daemonset.Strategy, problem string) (err error) {
	if s.options, err = s.optionsOf(s.object, wanted); err != nil {
		problem = err.Error()
	}
	s.events.Problem(s.ds, &s.state.reported, problem)
	switch {
	case wanted == daemonset.Unmanaged:
		return s.cleanup(ctx, problem)
	case problem != "":
		return s.say(ctx, status.ForInvalid(s.ds, problem), nil)
	case wanted == daemonset.OTA:
		s.stopRollout(s.key, s.state)
		return s.markPods(ctx)
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
func (r *reconciler) optionsOf(o workload.Object, wanted daemonset.Strategy) (options rollout.Options, err error) {
	switch wanted {
	case daemonset.AdvancedRollingUpdate:
		options, err = rollout.ParseOptions(o.GetAnnotations())
	case daemonset.OTA:
		options, err = rollout.ParseOTA(o.GetAnnotations())
	default:
	}
	return options, err
}
