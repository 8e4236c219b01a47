package tolerations

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/ota/api"
)

// reconcile brings the pods of a node, and then its condition, to what is asked for. It returns after what time to look
// again, 0 if that takes a change, also beside an error: a pod that cannot be changed holds up no other.
func (c *Controller) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	n := c.node(name)
	if n == nil {
		c.changed.Delete(name)
		return 0, nil
	}
	s, invalid := c.Fleet.SettingOf(n)
	needsPods := autonomy.NeedsPods(n, s)
	if needsPods && !c.pods.HasSynced() {
		return 0, nil // once they are listed, all nodes are queued
	}
	b := &batch{}
	if needsPods && invalid == nil {
		b = c.patchPods(ctx, n, s)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	failed := b.err()
	if failed == nil && b.again > 0 && !s.Released() {
		return b.again, nil // the condition is for when all pods are done
	}
	condition := autonomy.ConditionFor(n, s, invalid, failed)
	if condition != nil && condition.Reason == autonomy.ReasonApplied && b.stay == 0 && b.leave > 0 {
		condition = c.fleet().WithoutEffect()
	}
	conflict, err := c.writeCondition(ctx, n, condition)
	switch {
	case failed != nil:
		return b.again, failed
	case conflict && (b.again == 0 || b.again > minRetry):
		return minRetry, nil
	default:
		return b.again, err
	}
}

// writeCondition patches the Node if something is to be changed; conflict is true if it is not the Node that was seen.
func (c *Controller) writeCondition(ctx context.Context, n *corev1.Node, condition *corev1.NodeCondition) (conflict bool, err error) {
	patch, changed, err := autonomy.PatchFor(n, condition, metav1.Now())
	if patch == nil || err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, podclient.Timeout)
	defer cancel()
	_, err = c.Client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: c.Name}, "status")
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case podclient.IsConflict(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("write condition %s: %w", api.AutonomyCondition, err)
	}
	if changed {
		kind := corev1.EventTypeNormal
		switch condition.Reason {
		case autonomy.ReasonInvalid, autonomy.ReasonIncomplete, autonomy.ReasonNoEffect:
			kind = corev1.EventTypeWarning
		}
		c.events.Event(n, kind, condition.Reason, condition.Message)
		c.Logger.Info("autonomy of a node has changed", "node", n.Name, "reason", condition.Reason, "message", condition.Message)
	}
	return false, nil
}
