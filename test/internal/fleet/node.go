package fleet

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a node has of each resource.
var (
	many = resource.MustParse("1000")
	cpus = resource.MustParse("4")
)

// reason is why a node is Ready, or not.
const reason = "Fleet"

// CutOff takes a node away: nothing happens to its pods any more, and its condition
// is set at once, as the node lifecycle controller would after a while.
func (f *Fleet) CutOff(ctx context.Context, name string) error {
	f.setAway(name, true)
	return f.setReady(ctx, name, corev1.ConditionUnknown)
}

// Connect brings a node back, and everything that was missed is made up for.
func (f *Fleet) Connect(ctx context.Context, name string) error {
	f.setAway(name, false)
	if err := f.renew(ctx, name); err != nil {
		return err
	}
	if err := f.setReady(ctx, name, corev1.ConditionTrue); err != nil {
		return err
	}
	f.revisit(name)
	return nil
}

func (f *Fleet) setAway(name string, away bool) {
	f.mark(func() {
		if _, ok := f.nodes[name]; ok {
			f.nodes[name] = away
		}
	})
}

// away reports whether a node is cut off, or not of the fleet.
func (f *Fleet) away(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	away, ok := f.nodes[name]
	return away || !ok
}

// revisit looks at the pods of a node again.
func (f *Fleet) revisit(name string) {
	objects, err := f.pods.GetIndexer().ByIndex("node", name)
	if err != nil {
		return
	}
	for _, object := range objects {
		if pod, ok := object.(*corev1.Pod); ok {
			f.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
}

// setReady sets a node's Ready condition.
func (f *Fleet) setReady(ctx context.Context, name string, ready corev1.ConditionStatus) error {
	stamp := time.Now().UTC().Format(time.RFC3339)
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q,"reason":%q,"lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		ready, reason, stamp, stamp)
	_, err := f.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("fleet: node %s: %w", name, err)
	}
	return nil
}

// beat keeps the nodes alive in the eyes of the node lifecycle controller.
func (f *Fleet) beat(ctx context.Context) {
	tick := time.NewTicker(f.options.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, name := range f.present() {
			if err := f.renew(ctx, name); err != nil && ctx.Err() == nil {
				fmt.Fprintln(f.options.Log, err)
			}
		}
	}
}

func (f *Fleet) present() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name, away := range f.nodes {
		if !away {
			out = append(out, name)
		}
	}
	return out
}

func (f *Fleet) renew(ctx context.Context, name string) error {
	leases := f.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return f.createLease(ctx, name)
	}
	if err != nil {
		return fmt.Errorf("fleet: renew lease of node %s: %w", name, err)
	}
	return nil
}

func (f *Fleet) createLease(ctx context.Context, name string) error {
	seconds := int32(40)
	now := metav1.NowMicro()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: corev1.NamespaceNodeLease}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now}
	_, err := f.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("fleet: create lease of node %s: %w", name, err)
	}
	return nil
}
