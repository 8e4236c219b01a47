package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// patchTimeout is for one pod. It is well above the time the apiserver gives
// itself to admit a write (10 s for each webhook by default), so that the answer
// is the apiserver's.
const patchTimeout = 30 * time.Second

// podClient patches and deletes pods, a few at once. It is safe for concurrent use.
type podClient struct {
	client  kubernetes.Interface
	limit   int         // how many requests of one call are under way at once
	patched func(error) // called with the answer to each patch
	deleted func(error) // called with the answer to each deletion
}

// patchResult is what became of a batch of changes.
type patchResult struct {
	// changed are the pods as the apiserver returned them.
	changed []*corev1.Pod
	// conflicts counts pods that made way for others of the same name, or were
	// written by others again and again.
	conflicts int
	// failed counts those refused for any other reason, and unchanged are the pods of
	// both.
	failed    int
	unchanged []types.UID
	total     int
	// first is the first error, with the pod's name.
	first error
}

// err is nil if every pod still there got its patch. It sums up, since thousands
// of pods may have been refused for the same reason.
func (o *patchResult) err() error {
	if o.first == nil {
		return nil
	}
	return fmt.Errorf("patch status of pods: %d of %d not done, the first: %s", o.conflicts+o.failed, o.total, quoteError(o.first))
}

// errIfNone is err unless any pod got its patch: then others may, and those that did not are
// tried again by themselves.
func (o *patchResult) errIfNone() error {
	if len(o.changed) > 0 {
		return nil
	}
	return o.err()
}

// patch sends the patches, a few at once, and goes on after an error. A pod that
// is gone is none. It returns early only when ctx is done.
func (c *podClient) patch(ctx context.Context, patches []podPatch) patchResult {
	var mu sync.Mutex
	out := patchResult{total: len(patches)}
	forEach(ctx, c.limit, patches, func(p podPatch) {
		pod, err := c.send(ctx, p)
		mu.Lock()
		defer mu.Unlock()
		out.add(p.pod.UID, pod, err)
	})
	if err := ctx.Err(); err != nil && out.first == nil {
		out.first = err
	}
	return out
}

// add counts one answer: a pod, an error, or neither for a pod that is gone.
func (o *patchResult) add(uid types.UID, pod *corev1.Pod, err error) {
	switch {
	case err == nil && pod != nil:
		o.changed = append(o.changed, pod)
	case err == nil:
		return
	case isConflict(err):
		o.conflicts++
	default:
		o.failed++
	}
	o.unchanged = append(o.unchanged, uid)
	if o.first == nil {
		o.first = err
	}
}

// send returns nil and no error when the pod is gone.
func (c *podClient) send(ctx context.Context, p podPatch) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	pod, err := c.client.CoreV1().Pods(p.pod.Namespace).Patch(ctx, p.pod.Name, types.StrategicMergePatchType,
		p.patch, metav1.PatchOptions{FieldManager: Name}, "status")
	c.patched(err)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil // a pod that is gone needs nothing
	case err != nil:
		return nil, fmt.Errorf("pod %s: %w", p.pod.Name, err)
	}
	return pod, nil
}

// isConflict tells whether err comes of somebody else's write, so that looking
// again is all it takes. A patch for a pod whose name belongs to another by now
// is refused as a change of an immutable UID.
func isConflict(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}
