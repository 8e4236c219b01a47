// Package podclient patches and deletes many pods at once, and finds out what became of
// each: done, already gone, a conflict that goes away by reading again, refused, or unknown.
// One pod's failure does not end a batch.
package podclient

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Timeout is for one request. It is well above the time the apiserver gives
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

// IsConflict reports whether err was caused by another client's write, so that reading
// again is all it takes. The apiserver refuses a patch for a pod whose name belongs to
// another by now as a change of an immutable UID.
func IsConflict(err error) bool {
	if apierrors.IsConflict(err) {
		return true
	}
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || !apierrors.IsInvalid(err) || answer.ErrStatus.Details == nil {
		return false
	}
	return slices.ContainsFunc(answer.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}

// ResultOf returns the label of metrics for the answer to one request for a pod: success, gone, conflict or error.
func ResultOf(err error) string {
	switch {
	case err == nil:
		return "success"
	case apierrors.IsNotFound(err):
		return "gone"
	case IsConflict(err):
		return "conflict"
	default:
		return "error"
	}
}

// forEach calls f for each item, for at most limit of them at once, and returns when all
// calls have. It begins no more calls when ctx is done.
func forEach[T any](ctx context.Context, limit int, items []T, f func(T)) {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			f(item)
			return nil
		})
	}
	_ = g.Wait() // no call returns an error
}
