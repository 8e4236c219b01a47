package controller

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/informer"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/workload"
)

// written is what was last written to a workload's conditions and report.
type written struct {
	// object is what the apiserver returned, which the watch may be behind of.
	object workload.Object
	at     time.Time
}

// say patches the workload's conditions, which a StatefulSet has none of, and its report if need be: at once when
// something changes that programs wait for, and not too often when only numbers and names do.
func (s *scope) say(ctx context.Context, want status.Conditions, report *rollout.Report) error {
	o, last := s.object, &s.state.written
	if last.object != nil && last.object.GetUID() == o.GetUID() && informer.Newer(last.object, o) {
		o = last.object
	}
	now := time.Now()
	patch, interval := status.PatchWorkload(o, want, report, now)
	if patch == nil {
		return nil
	}
	if wait := interval - now.Sub(last.at); wait > 0 {
		s.queue.AddAfter(s.key, wait)
		return nil
	}
	answer, err := s.patchStatus(ctx, types.StrategicMergePatchType, patch)
	if err != nil {
		return fmt.Errorf("patch conditions and report: %w", err)
	}
	if answer != nil {
		*last = written{object: answer, at: now}
	}
	return nil
}

// patchStatus patches the workload by its status, and returns the answer, trimmed; nil if the workload is gone, or
// another has its name, which brings an event.
func (s *scope) patchStatus(ctx context.Context, t types.PatchType, patch []byte) (workload.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	var (
		answer  workload.Object
		err     error
		options = metav1.PatchOptions{FieldManager: Name}
	)
	if s.ds == nil {
		var sts *appsv1.StatefulSet
		if sts, err = s.client.AppsV1().StatefulSets(s.key.Namespace).Patch(ctx, s.key.Name, t, patch, options, "status"); err == nil {
			answer = informer.TrimStatefulSet(sts)
		}
	} else {
		var ds *appsv1.DaemonSet
		if ds, err = s.client.AppsV1().DaemonSets(s.key.Namespace).Patch(ctx, s.key.Name, t, patch, options, "status"); err == nil {
			answer = informer.TrimDaemonSet(ds)
		}
	}
	if apierrors.IsNotFound(err) || podclient.IsConflict(err) {
		return nil, nil //nolint:nilnil // gone is an answer, too
	}
	return answer, err
}
