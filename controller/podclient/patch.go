package podclient

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/status"
)

// PatchResult sums up the answers to a batch of patches. A pod that is gone counts neither
// as changed nor as unchanged.
type PatchResult struct {
	// Changed are the pods as the apiserver returned them.
	Changed []*corev1.Pod
	// Unchanged are the pods whose patch was refused, or failed. Failed counts those that
	// did so for another reason than a conflict.
	Unchanged []types.UID
	Failed    int

	total int
	first error // with the pod's name
}

// Err is nil if every pod still there got its patch. It sums up, since thousands
// of pods may have been refused for the same reason.
func (r *PatchResult) Err() error {
	if r.first == nil {
		return nil
	}
	return fmt.Errorf("patch pods: %d of %d not done, the first: %s",
		len(r.Unchanged), r.total, expectations.QuoteError(r.first))
}

// ErrIfNone is Err unless any pod got its patch: then others may, and those that did not are
// tried again by themselves.
func (r *PatchResult) ErrIfNone() error {
	if len(r.Changed) > 0 {
		return nil
	}
	return r.Err()
}

// Patch sends the patches, a few at once, and goes on after an error. It returns early only
// when ctx is done.
func (c *Client) Patch(ctx context.Context, patches []status.PodPatch) PatchResult {
	var mu sync.Mutex
	out := PatchResult{total: len(patches)}
	forEach(ctx, c.Limit, patches, func(p status.PodPatch) {
		pod, err := c.patchPod(ctx, p)
		mu.Lock()
		defer mu.Unlock()
		out.add(p.Pod, pod, err)
	})
	if err := ctx.Err(); err != nil && out.first == nil {
		out.first = err
	}
	return out
}

// add counts the answer to the patch of pod.
func (r *PatchResult) add(pod, changed *corev1.Pod, err error) {
	switch {
	case err == nil:
		r.Changed = append(r.Changed, changed)
		return
	case apierrors.IsNotFound(err):
		return
	case !IsConflict(err):
		r.Failed++
	}
	r.Unchanged = append(r.Unchanged, pod.UID)
	if r.first == nil {
		r.first = fmt.Errorf("pod %s: %w", pod.Name, err)
	}
}

func (c *Client) patchPod(ctx context.Context, p status.PodPatch) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	subresources := []string{"status"}
	if p.Spec {
		subresources = nil
	}
	pod, err := c.Kube.CoreV1().Pods(p.Pod.Namespace).Patch(ctx, p.Pod.Name, types.StrategicMergePatchType,
		p.Patch, metav1.PatchOptions{FieldManager: c.FieldManager}, subresources...)
	c.OnPatch(err)
	return pod, err
}
