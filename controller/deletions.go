package controller

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

// Bounds of a request that deletes a pod.
const (
	deleteTimeout = patchTimeout
	// lastWords is how long a deletion under way may still take when the
	// controller is told to stop. What the apiserver gets after the next one has
	// listed the pods would count on top of the maximum.
	lastWords = time.Second
)

// deletions are the pods of one DaemonSet whose deletion was sent and that the
// watch still shows as if it were not. A stale watch can cause no second deletion
// because of them, neither of the same pod nor of one too many.
type deletions struct {
	mu sync.Mutex
	// byUID is guarded by mu. The value is the pod when it is not known whether
	// the apiserver did it, and nil when it did.
	byUID map[types.UID]*corev1.Pod
}

func newDeletions() *deletions { return &deletions{byUID: map[types.UID]*corev1.Pod{}} }

func (d *deletions) has(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.byUID[uid]
	return ok
}

// expect is called before the request is sent.
func (d *deletions) expect(pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byUID[pod.UID] = pod
}

// answered is called with what the apiserver said.
func (d *deletions) answered(deletion rollout.Deletion, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	uid := deletion.Pod.UID
	switch {
	case err == nil, apierrors.IsNotFound(err):
		d.byUID[uid] = nil
	case deletion.Idle:
		// If it was done all the same, the pod is no more available than it looked,
		// and the next try has the same precondition.
		delete(d.byUID, uid)
	case apierrors.IsConflict(err): // the name is another's by now
		d.byUID[uid] = nil
	case refused(err):
		delete(d.byUID, uid)
	}
}

// refused tells whether the apiserver said no, as opposed to nothing, or to
// something that leaves open what it did.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsTooManyRequests(err) || apierrors.IsMethodNotSupported(err)
}

// caughtUp forgets the pods that the watch shows as terminating or not at all, and
// returns those for which the request has to be sent again.
func (d *deletions) caughtUp(pods []*corev1.Pod) (again []rollout.Deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byUID) == 0 {
		return nil
	}
	behind := map[types.UID]*corev1.Pod{}
	for _, pod := range pods {
		unsure, ok := d.byUID[pod.UID]
		if !ok || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		behind[pod.UID] = unsure
		if unsure != nil {
			again = append(again, rollout.Deletion{Pod: pod, Reason: "the apiserver did not say whether it was deleted"})
		}
	}
	d.byUID = behind
	return again
}

// deletePods deletes them, a few at once, and goes on after an error. The error
// sums up those that were not deleted, but for those of which changed tells that
// there are any: they are not what they were thought to be.
func (r *reconciler) deletePods(ctx context.Context, d *deletions, all []rollout.Deletion) (changed bool, err error) {
	var (
		g      errgroup.Group
		mu     sync.Mutex
		failed int
		first  error
	)
	g.SetLimit(r.patches)
	for _, deletion := range all {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := r.deletePod(ctx, d, deletion)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
			case deletion.Idle && apierrors.IsConflict(err):
				changed = true
			default:
				failed++
				first = cmp.Or(first, err)
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are counted
	if first != nil {
		return changed, fmt.Errorf("delete pods: %d of %d not done, the first: %w", failed, len(all), first)
	}
	return changed, ctx.Err()
}

// deletePod returns no error for a pod that is gone.
func (r *reconciler) deletePod(ctx context.Context, d *deletions, deletion rollout.Deletion) error {
	ctx, cancel := outlive(ctx, lastWords, deleteTimeout)
	defer cancel()
	pod := deletion.Pod
	only := metav1.NewUIDPreconditions(string(pod.UID))
	if deletion.Idle {
		only.ResourceVersion = &pod.ResourceVersion
	}
	d.expect(pod)
	err := r.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: only})
	d.answered(deletion, err)
	r.metrics.deleted(err)
	if err == nil || apierrors.IsNotFound(err) || (apierrors.IsConflict(err) && !deletion.Idle) {
		return nil
	}
	return fmt.Errorf("pod %s: %w", pod.Name, err)
}

// outlive returns a context that is done after timeout, and not before ctx has
// been for the time of grace.
func outlive(ctx context.Context, grace, timeout time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() { stop(); cancel() }
}
