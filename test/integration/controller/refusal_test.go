package controller_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Pods that cannot be marked hold up no other, and are marked when they can be.
func TestARefusalOfSomePodsDoesNotHoldUpTheOthers(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	allow := f.refuse(f.names()[1:]...)
	f.SetImage("app:2")
	f.await(map[string]int{needsOne: 1, upToDate: nodes - 1})
	f.AwaitEvent("MarkingFailed", "Warning", "2 of 3 not done", "not this pod")
	poll.Eventually(t, "it is tried again", func() bool {
		n, _ := r.metric(t, "edgehub_controller_pod_patches_total", map[string]string{"result": "error"})
		return n > nodes
	})
	allow()
	f.await(map[string]int{needsOne: nodes})
}

// Sent one after the other, all three are refused in the first round: no refusal
// ended it.
func TestARefusalDoesNotEndTheRound(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	startWith(t, controller.Options{Patches: 1})
	f.await(map[string]int{upToDate: nodes})
	allow := f.refuse(f.names()...)
	f.SetImage("app:2")
	f.AwaitEvent("MarkingFailed", "Warning", "3 of 3 not done")
	allow()
	f.await(map[string]int{needsOne: nodes})
}

// refuse makes the apiserver refuse patches of the status of these pods, until
// allow is called.
func (f *fixture) refuse(pods ...string) (allow func()) {
	f.t.Helper()
	policies := env.admin.AdmissionregistrationV1()
	var rule admissionv1.NamedRuleWithOperations
	rule.Operations = []admissionv1.OperationType{admissionv1.Update}
	rule.APIGroups, rule.APIVersions, rule.Resources = []string{""}, []string{"v1"}, []string{"pods/status"}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.Namespace}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}}
	policy.Spec.Validations = []admissionv1.Validation{{
		Expression: fmt.Sprintf("object.metadata.namespace != %q || !(object.metadata.name in ['%s'])", f.Namespace, strings.Join(pods, "','")),
		Message:    "not this pod",
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	if _, err := policies.ValidatingAdmissionPolicies().Create(f.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(f.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		f.t.Fatal(err)
	}
	poll.Eventually(f.t, "the policy is in force", func() bool {
		_, err := env.admin.CoreV1().Pods(f.Namespace).Patch(f.t.Context(), pods[0], types.StrategicMergePatchType,
			[]byte(`{"metadata":{"annotations":{"probe":"1"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return apierrors.IsInvalid(err)
	})
	return func() {
		f.t.Helper()
		if err := policies.ValidatingAdmissionPolicyBindings().Delete(f.t.Context(), policy.Name, metav1.DeleteOptions{}); err != nil {
			f.t.Fatal(err)
		}
		if err := policies.ValidatingAdmissionPolicies().Delete(f.t.Context(), policy.Name, metav1.DeleteOptions{}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// What the controller relies on when a name belongs to another pod by now: the
// patch is refused, in the words that it takes for a conflict.
func TestTheApiserverRefusesAPatchForAnotherUID(t *testing.T) {
	f := newDaemonSet(t, nil)
	client, err := kubernetes.NewForConfig(accountConfig())
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

// A pod that goes away while it is marked is no failure, and its successor is
// marked as what it is.
func TestPodsThatComeAndGo(t *testing.T) {
	f := newDaemonSet(t, map[string]string{strategyKey: "OTA"})
	r := start(t)
	f.await(map[string]int{upToDate: nodes})
	f.SetImage("app:2")
	for _, pod := range f.names() { // while they are being marked
		f.replace(pod)
	}
	f.await(map[string]int{upToDate: nodes})
	n, _ := r.metric(t, "edgehub_controller_pod_patches_total", map[string]string{"result": "error"})
	if n != 0 || len(f.Events("MarkingFailed")) != 0 {
		t.Errorf("%v patches failed, Events %v", n, f.Events("MarkingFailed"))
	}
}
