package successor

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// patchTimeout is above what the apiserver gives itself to admit a write.
const patchTimeout = 30 * time.Second

// AskPatch returns what the apiserver would make of a pod by a strategic merge patch. It takes no right that the controller does
// not have to patch pods. A patch that meets another pod, or a pod that has changed, is Unknown.
func (a *Asker) AskPatch(ctx context.Context, pod *corev1.Pod, patch []byte) Verdict {
	if a == nil {
		return Verdict{Result: Unknown, Why: "nobody was asked"}
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	out, err := a.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err == nil:
		return Verdict{Result: Admitted, Pod: out, Asked: true}
	case refusesPatch(err):
		return Verdict{Result: Refused, Why: words(err), Asked: true}
	}
	return Verdict{Result: Unknown, Why: words(err), Asked: true}
}

// noPatch is how the apiserver's authorizer refuses, as opposed to admission.
var noPatch = regexp.MustCompile(`^pods "[^"]*" is forbidden: User "[^"]*" cannot patch resource "pods"`)

// refusesPatch is refuses for a patch. A webhook that refuses dry runs is none whose answer can be known beforehand.
func refusesPatch(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	s := answer.ErrStatus
	denied := strings.Contains(s.Message, "webhook") && strings.Contains(s.Message, "denied the request")
	switch {
	case strings.Contains(s.Message, "does not support dry run"):
		return true
	case noPatch.MatchString(s.Message), isOther(s):
		return false
	case !denied && (s.Code == http.StatusConflict || s.Code == http.StatusNotFound):
		return false
	}
	return refuses(err)
}

// isOther reports whether the name belongs to another pod by now: the apiserver takes that for a change of an immutable UID.
func isOther(s metav1.Status) bool {
	if s.Details == nil {
		return false
	}
	for _, c := range s.Details.Causes {
		if c.Field == "metadata.uid" {
			return true
		}
	}
	return false
}
