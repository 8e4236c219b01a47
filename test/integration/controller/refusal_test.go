package controller_test

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// What the controller relies on when a name belongs to another pod by now: the
// patch is refused, in the words that it takes for a conflict.
func TestTheApiserverRefusesAPatchForAnotherUID(t *testing.T) {
	f := newDaemonSet(t, nil)
	client, err := kubernetes.NewForConfig(env.AccountConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Pods(f.Namespace).Patch(t.Context(), f.names()[0], types.StrategicMergePatchType,
		[]byte(`{"metadata":{"uid":"another"},"status":{"conditions":[{"type":"PodNeedUpgrade","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	t.Logf("the apiserver says: %v", err)
	cause, found := apierrors.StatusCause(err, metav1.CauseTypeFieldValueInvalid)
	if !apierrors.IsConflict(err) && (!found || cause.Field != "metadata.uid") {
		t.Errorf("got %v, want a conflict, or metadata.uid as the cause", err)
	}
	if f.marks()[unmarked] != nodes {
		t.Errorf("the pods are %v", f.marks())
	}
}
