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
	"github.com/edgehub-io/edgehub/controller/status"
)

// minInterval is the least time between patches that change only messages of conditions.
// Each patch makes Kubernetes reconcile the whole DaemonSet.
const minInterval = time.Second

// written is what was last written to a DaemonSet's conditions.
type written struct {
	// ds is what the apiserver returned, which the watch may be behind of.
	ds *appsv1.DaemonSet
	at time.Time
}

// setConditions patches ds if need be: at once when a status or a reason changes,
// and not more often than minInterval when only a message does.
func (s *scope) setConditions(ctx context.Context, want status.Conditions) error {
	ds, last := s.ds, &s.state.written
	if last.ds != nil && last.ds.UID == ds.UID && informer.Newer(last.ds, ds) {
		ds = last.ds
	}
	now := time.Now()
	patch, urgent := status.PatchConditions(ds, want, now)
	if patch == nil {
		return nil
	}
	if wait := minInterval - now.Sub(last.at); !urgent && wait > 0 {
		s.queue.AddAfter(s.key, wait)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	answer, err := s.client.AppsV1().DaemonSets(ds.Namespace).Patch(ctx, ds.Name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{FieldManager: Name}, "status")
	if apierrors.IsNotFound(err) || podclient.IsConflict(err) {
		return nil // gone, or another of the same name, which brings an event
	}
	if err != nil {
		return fmt.Errorf("patch conditions: %w", err)
	}
	*last = written{ds: informer.TrimDaemonSet(answer), at: now}
	return nil
}
