package podclient

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The first error is what an apiserver answers to a patch for another UID; that it
// does is for the integration tests to see.
func TestConflicts(t *testing.T) {
	pods, pod := corev1.Resource("pods"), corev1.SchemeGroupVersion.WithKind("Pod").GroupKind()
	invalid := func(path string) error {
		return apierrors.NewInvalid(pod, "web-1", field.ErrorList{field.Invalid(field.NewPath("metadata", path), "x", "field is immutable")})
	}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"the name belongs to another pod":    {invalid("uid"), true},
		"the same, with the pod's name":      {fmt.Errorf("pod web-1: %w", invalid("uid")), true},
		"written by others again and again":  {apierrors.NewConflict(pods, "web-1", errors.New("modified")), true},
		"another field is refused":           {invalid("annotations"), false},
		"a policy says no":                   {apierrors.NewForbidden(pods, "web-1", errors.New("not this pod")), false},
		"the apiserver cannot be reached":    {errors.New("connection refused"), false},
		"an invalid without details is none": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonInvalid}}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := IsConflict(tt.err); got != tt.want {
				t.Errorf("got %t for %v, want %t", got, tt.err, tt.want)
			}
		})
	}
}
