package podclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/edgehub-io/edgehub/controller/expectations"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// deleteGrace is how long a deletion in flight may still take after the
// controller has been asked to stop. A deletion that reaches the apiserver
// after the next controller has listed the pods would exceed the maximum.
const deleteGrace = time.Second

// DeleteResult sums up the answers to a batch of deletions.
type DeleteResult struct {
	total, deleting, failed int
	first                   string // the first pod that failed, and the answer
}

// Problem is "" unless a pod was refused, or it is not known what became of one.
func (d *DeleteResult) Problem() string {
	if d.failed == 0 {
		return ""
	}
	return fmt.Sprintf("delete pods: %d of %d not done, the first: %s", d.failed, d.total, d.first)
}

// Err is nil if any pod was deleted: then others may be, and those that failed are
// tried again by themselves.
func (d *DeleteResult) Err() error {
	if d.failed == 0 || d.deleting > 0 {
		return nil
	}
	return errors.New(d.Problem())
}

// Delete deletes the pods, a few at once, and goes on after a failure.
func (c *Client) Delete(ctx context.Context, expected *expectations.Deletions, all []rollout.Deletion) DeleteResult {
	var mu sync.Mutex
	out := DeleteResult{total: len(all)}
	forEach(ctx, c.Limit, all, func(deletion rollout.Deletion) {
		outcome, conflict, err := c.deletePod(ctx, expected, deletion)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case outcome == expectations.Deleting:
			out.deleting++
		case !conflict:
			out.failed++
			if out.first == "" {
				out.first = fmt.Sprintf("pod %s: %s", deletion.Pod.Name, expectations.QuoteError(err))
			}
		}
	})
	return out
}

// deletePod deletes the pod and returns what became of it. conflict is true if the only
// reason for a failure is that the pod has changed since it was seen.
func (c *Client) deletePod(ctx context.Context, expected *expectations.Deletions, deletion rollout.Deletion) (
	outcome expectations.Outcome, conflict bool, err error,
) {
	ctx, cancel := withGrace(ctx, deleteGrace, Timeout)
	defer cancel()
	pod := deletion.Pod
	only := metav1.NewUIDPreconditions(string(pod.UID))
	if deletion.NotReady || deletion.Unchanged {
		only.ResourceVersion = &pod.ResourceVersion
	}
	expected.Expect(pod)
	err = c.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: only})
	c.OnDelete(err)
	conflict = apierrors.IsConflict(err) && (deletion.NotReady || deletion.Unchanged)
	switch {
	case err == nil:
		outcome = expectations.Deleting
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && !deletion.NotReady:
		outcome = c.outcomeOf(ctx, pod)
	case refused(err):
		outcome = expectations.Kept
	default:
		outcome = expectations.Unknown
	}
	if deletion.NotReady && outcome != expectations.Deleting {
		// If the apiserver deleted it all the same, the pod was no more available than it
		// looked, and the next try has the same precondition.
		outcome = expectations.Kept
	}
	expected.Answered(pod, outcome, conflict, err, time.Now())
	return outcome, conflict, err
}

// refused reports whether err is a refusal by the apiserver, as opposed to no answer, or
// an answer that leaves open whether the pod was deleted. Admission webhooks are called
// before anything is deleted. They may deny a request with any code, or not answer.
func refused(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	s := answer.ErrStatus
	byWebhook := strings.Contains(s.Message, "failed calling webhook") ||
		strings.Contains(s.Message, "webhook") && strings.Contains(s.Message, "denied the request")
	return byWebhook ||
		s.Code >= http.StatusBadRequest && s.Code < http.StatusInternalServerError && s.Code != http.StatusRequestTimeout
}

// outcomeOf lists the pod after its deletion failed with a conflict or not found: the name
// may belong to another pod by now, or to none, or the error came from an admission webhook
// and the pod still exists.
func (c *Client) outcomeOf(ctx context.Context, pod *corev1.Pod) expectations.Outcome {
	list, err := c.Kube.CoreV1().Pods(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, pod.Name).String(),
	})
	if err != nil {
		return expectations.Unknown
	}
	for i := range list.Items {
		if p := &list.Items[i]; p.UID == pod.UID && p.DeletionTimestamp.IsZero() {
			return expectations.Kept
		}
	}
	return expectations.Deleting
}

// withGrace returns a context that is done after timeout, or when ctx has been done for
// grace.
func withGrace(ctx context.Context, grace, timeout time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return longer, func() { stop(); cancel() }
}
