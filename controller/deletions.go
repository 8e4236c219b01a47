package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
func (d *deletions) answered(pod *corev1.Pod, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err): // gone, or the name is another's by now
		d.byUID[pod.UID] = nil
	case refused(err):
		delete(d.byUID, pod.UID)
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
func (d *deletions) caughtUp(pods []*corev1.Pod) (again []*corev1.Pod) {
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
			again = append(again, pod)
		}
	}
	d.byUID = behind
	return again
}

// deletePods deletes them, a few at once, and goes on after an error. It returns
// how many are gone or on their way, and an error that sums up the others.
func (r *reconciler) deletePods(ctx context.Context, d *deletions, pods []*corev1.Pod) (done int, err error) {
	var (
		g      errgroup.Group
		mu     sync.Mutex
		failed int
		first  error
	)
	g.SetLimit(r.patches)
	for _, pod := range pods {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			err := r.deletePod(ctx, d, pod)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				done++
				return nil
			}
			failed++
			if first == nil {
				first = err
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are counted
	if first != nil {
		return done, fmt.Errorf("delete pods: %d of %d not done, the first: %w", failed, len(pods), first)
	}
	return done, ctx.Err()
}

func (r *reconciler) deletePod(ctx context.Context, d *deletions, pod *corev1.Pod) error {
	ctx, cancel := outlive(ctx, lastWords, deleteTimeout)
	defer cancel()
	d.expect(pod)
	err := r.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
	d.answered(pod, err)
	r.metrics.deleted(err)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
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
