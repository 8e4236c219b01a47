package podclient

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

	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/status"
)

// Timeout is for one pod. It is well above the time the apiserver gives
// itself to admit a write (10 s for each webhook by default), so that the answer
// is the apiserver's.
const Timeout = 30 * time.Second

// Client patches and deletes pods, a few at once. It is safe for concurrent use.
type Client struct {
	Kube         kubernetes.Interface
	FieldManager string
	Limit        int         // how many requests of one call are under way at once
	OnPatch      func(error) // called with the answer to each patch
	OnDelete     func(error) // called with the answer to each deletion
}

// PatchResult sums up the answers to a batch of patches.
type PatchResult struct {
	// Changed are the pods as the apiserver returned them.
	Changed []*corev1.Pod
	// Conflicts counts pods that made way for others of the same name, or were
	// written by others again and again.
	Conflicts int
	// Failed counts those refused for any other reason, and Unchanged are the pods of
	// both.
	Failed    int
	Unchanged []types.UID
	Total     int
	// First is the first error, with the pod's name.
	First error
}

// Err is nil if every pod still there got its patch. It sums up, since thousands
// of pods may have been refused for the same reason.
func (o *PatchResult) Err() error {
	if o.First == nil {
		return nil
	}
	return fmt.Errorf("patch status of pods: %d of %d not done, the first: %s", o.Conflicts+o.Failed, o.Total, expectations.QuoteError(o.First))
}

// ErrIfNone is Err unless any pod got its patch: then others may, and those that did not are
// tried again by themselves.
func (o *PatchResult) ErrIfNone() error {
	if len(o.Changed) > 0 {
		return nil
	}
	return o.Err()
}

// Patch sends the patches, a few at once, and goes on after an error. A pod that
// is gone is none. It returns early only when ctx is done.
func (c *Client) Patch(ctx context.Context, patches []status.PodPatch) PatchResult {
	var mu sync.Mutex
	out := PatchResult{Total: len(patches)}
	forEach(ctx, c.Limit, patches, func(p status.PodPatch) {
		pod, err := c.send(ctx, p)
		mu.Lock()
		defer mu.Unlock()
		out.add(p.Pod.UID, pod, err)
	})
	if err := ctx.Err(); err != nil && out.First == nil {
		out.First = err
	}
	return out
}

// add counts one answer: a pod, an error, or neither for a pod that is gone.
func (o *PatchResult) add(uid types.UID, pod *corev1.Pod, err error) {
	switch {
	case err == nil && pod != nil:
		o.Changed = append(o.Changed, pod)
	case err == nil:
		return
	case IsConflict(err):
		o.Conflicts++
	default:
		o.Failed++
	}
	o.Unchanged = append(o.Unchanged, uid)
	if o.First == nil {
		o.First = err
	}
}

// send returns nil and no error when the pod is gone.
func (c *Client) send(ctx context.Context, p status.PodPatch) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	pod, err := c.Kube.CoreV1().Pods(p.Pod.Namespace).Patch(ctx, p.Pod.Name, types.StrategicMergePatchType,
		p.Patch, metav1.PatchOptions{FieldManager: c.FieldManager}, "status")
	c.OnPatch(err)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil // a pod that is gone needs nothing
	case err != nil:
		return nil, fmt.Errorf("pod %s: %w", p.Pod.Name, err)
	}
	return pod, nil
}

// IsConflict reports whether err was caused by another client's write, so that reading
// again is all it takes. A patch for a pod whose name belongs to another by now
// is refused as a change of an immutable UID.
func IsConflict(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	var apiStatus apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &apiStatus) || apiStatus.Status().Details == nil {
		return false
	}
	for _, cause := range apiStatus.Status().Details.Causes {
		if cause.Field == "metadata.uid" {
			return true
		}
	}
	return false
}
