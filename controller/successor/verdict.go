package successor

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/ota/api"
)

// Result is what an apiserver says of a successor.
type Result string

// The results. The zero value is that of a question that was not asked.
const (
	// Admitted: it would be created.
	Admitted Result = "Admitted"
	// Refused: it would not, and the pod should stay.
	Refused Result = "Refused"
	// Unknown: the apiserver did not say, as without the right to ask, or while a webhook is down.
	Unknown Result = "Unknown"
)

// Verdict is the answer of an apiserver.
type Verdict struct {
	Result Result
	// Why has the apiserver's words, those it would have of a quota, or those of the failure to ask. It is ""
	// if Result is Admitted.
	Why string
	// Pod is the pod as it would be created, but for its name. It is nil unless Result is Admitted, and may be nil then: admission
	// of a quota that the old pod still has ends without an object.
	Pod *corev1.Pod
	// Asked is whether the apiserver was asked: the right is there, and guarded.
	Asked bool
}

// ask has the apiserver create a pod as a dry run. old is the pod that it would take the place of:
// what that uses of a quota is free by then.
func ask(ctx context.Context, client kubernetes.Interface, pod, old *corev1.Pod) Verdict {
	create := func(pod *corev1.Pod) (*corev1.Pod, error) {
		return client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	created, err := create(pod)
	switch {
	case err == nil:
		return Verdict{Result: Admitted, Pod: created}
	case apierrors.IsAlreadyExists(err) && pod.Name != "":
		// Admission has passed, and the old pod still has the name. What it has made of the pod is returned for another name only.
		unnamed := pod.DeepCopy()
		unnamed.Name, unnamed.GenerateName = "", pod.Name+"-"
		if created, err = create(unnamed); err != nil {
			created = nil
		}
		return Verdict{Result: Admitted, Pod: created}
	case !refuses(err):
		return Verdict{Result: Unknown, Why: words(err)}
	}
	if why := refusalWithout(ctx, client, err, pod, old); why != "" {
		return Verdict{Result: Refused, Why: why}
	}
	return Verdict{Result: Admitted} // quotas come last in admission
}

// maxWords is how much of an error is repeated: enough for the name of a policy and its reason.
const maxWords = 300

// words returns the apiserver's words in one line, the same each time: without the pod, whose name is
// random.
func words(err error) string {
	text := err.Error()
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Details != nil && status.ErrStatus.Details.Name != "" {
		text = strings.ReplaceAll(text, status.ErrStatus.Details.Name, "")
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, `pods "" is forbidden: `), "pods is forbidden: ")
	return api.OneLine(text, maxWords)
}

// noRight is how the apiserver's authorizer refuses, as opposed to admission.
var noRight = regexp.MustCompile(`^pods is forbidden: User "[^"]*" cannot create resource "pods"`)

// refuses reports whether an error says that the pod cannot be created. Policies deny with 422,
// webhooks with any code. A webhook that cannot be called, or that refuses dry runs, says nothing of
// the pod, nor does an apiserver that is busy.
func refuses(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	s := answer.ErrStatus
	switch {
	case noRight.MatchString(s.Message), strings.Contains(s.Message, "does not support dry run"), strings.Contains(s.Message, "failed calling webhook"):
		return false
	case strings.Contains(s.Message, "webhook") && strings.Contains(s.Message, "denied the request"):
		return true
	}
	switch s.Code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return s.Code >= http.StatusBadRequest && s.Code < http.StatusInternalServerError
}
