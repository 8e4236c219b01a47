package rollback_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// newOfflineNode is newNode with a pod of app:1 that may be upgraded to app:2 while the cloud is away, and a hub that has stopped: the test
// reports in its place.
func newOfflineNode(t *testing.T) (n *node, pod *corev1.Pod) {
	t.Helper()
	n = newNode(t)
	n.Annotate(api.OfflineUpgradeAnnotation, api.OfflineUpgradeInPlace)
	n.SetImage("app:2")
	pod = n.waitFor("the apiserver was asked, and the pod is marked", func(pod *corev1.Pod) bool {
		next, ok := api.NextOf(pod)
		return ok && slices.Equal(next.InPlace, []api.ImageChange{{Name: "app", From: "app:1", To: "app:2"}})
	})
	n.hub.Stop()
	return n, pod
}

// reports says, with the node's rights, what the pod runs.
func (n *node) reports(pod *corev1.Pod, revision, image string) {
	n.t.Helper()
	config := rest.CopyConfig(s.Cluster.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + n.hub.Name, Groups: []string{"system:nodes", "system:authenticated"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		n.t.Fatal(err)
	}
	report := api.OfflineUpgrade{Revision: revision, From: hash(pod), Images: []api.TargetImage{{Name: "app", Image: image}}, Since: metav1.Now()}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]string{api.UpgradedOfflineAnnotation: report.Encode()}},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: api.UpgradedOfflineCondition, Status: corev1.ConditionTrue, Reason: api.ReasonPassed, Message: api.Message(revision), LastTransitionTime: metav1.Now(),
		}}},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods(n.Namespace).Patch(n.t.Context(), pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		n.t.Fatal(err)
	}
}

// follows waits until the cloud has what the pod runs.
func (n *node) follows(before *corev1.Pod, revision, image string) {
	n.t.Helper()
	pod := n.waitFor("the cloud has what the pod runs", func(pod *corev1.Pod) bool {
		return pod.Spec.Containers[0].Image == image && api.Condition(pod, api.ReconciledCondition) == nil
	})
	if _, ok := pod.Labels["pod-template-generation"]; ok || pod.UID != before.UID || hash(pod) != revision {
		n.t.Errorf("pod %s has labels %v, want pod %s and revision %s", pod.UID, pod.Labels, before.UID, revision)
	}
}

// Under the admission policies of deploy/, the controller asks before, and gives a pod what it runs afterwards.
func TestAPodThatWasUpgradedOfflineGetsWhatItRuns(t *testing.T) {
	n, pod := newOfflineNode(t)
	next, _ := api.NextOf(pod)
	n.reports(pod, next.Revision, "app:2")
	n.follows(pod, next.Revision, "app:2")
	poll.Eventually(t, "Kubernetes counts it, and the pod needs no upgrade", func() bool {
		need := api.Condition(n.pod(), api.NeedCondition)
		return n.Get().Status.UpdatedNumberScheduled == 1 && need != nil && need.Status == corev1.ConditionFalse
	})
}

// The admin has rolled out something else meanwhile: the pod is outdated, and it may be upgraded in place again.
func TestAPodThatWasUpgradedOfflineIsOutdatedOnceTheAdminHasMovedOn(t *testing.T) {
	n, pod := newOfflineNode(t)
	next, _ := api.NextOf(pod)
	n.SetImage("app:3")
	n.reports(pod, next.Revision, "app:2")
	n.follows(pod, next.Revision, "app:2")
	n.waitFor("the pod is marked for the newest version", func(pod *corev1.Pod) bool {
		newest, ok := api.NextOf(pod)
		return ok && slices.Equal(newest.InPlace, []api.ImageChange{{Name: "app", From: "app:2", To: "app:3"}})
	})
}

// What admission refuses by then waits until it does not.
func TestAPodThatWasUpgradedOfflineToWhatAdmissionRefuses(t *testing.T) {
	n, pod := newOfflineNode(t)
	next, _ := api.NextOf(pod)
	n.forbid("app:2")
	n.reports(pod, next.Revision, "app:2")
	pod = n.waitFor("the pod says what refuses it", func(pod *corev1.Pod) bool { return api.Condition(pod, api.ReconciledCondition) != nil })
	if c := api.Condition(pod, api.ReconciledCondition); c.Status != corev1.ConditionFalse || c.Reason != api.ReasonPatchRefused ||
		!strings.Contains(c.Message, "app:2 is forbidden") || pod.Spec.Containers[0].Image != "app:1" {
		t.Errorf("got %+v, and image %s", c, pod.Spec.Containers[0].Image)
	}
	n.permit()
	n.follows(pod, next.Revision, "app:2")
}

// An image that no revision has does not get into a pod, whatever its node reports.
func TestANodeCannotMakeUpAnImage(t *testing.T) {
	n, pod := newOfflineNode(t)
	next, _ := api.NextOf(pod)
	n.reports(pod, next.Revision, "evil:1")
	pod = n.waitFor("the pod says what is wrong", func(pod *corev1.Pod) bool { return api.Condition(pod, api.ReconciledCondition) != nil })
	if c := api.Condition(pod, api.ReconciledCondition); c.Reason != api.ReasonImagesDiffer || pod.Spec.Containers[0].Image != "app:1" {
		t.Errorf("got %+v, and image %s", c, pod.Spec.Containers[0].Image)
	}
}

// forbid has the apiserver refuse pods of the node's namespace that are changed to have an image, until permit or the end of the test.
func (n *node) forbid(image string) {
	n.t.Helper()
	meta, fail := metav1.ObjectMeta{Name: n.Namespace}, admissionv1.Fail
	client := s.Admin.AdmissionregistrationV1()
	_, err := client.ValidatingAdmissionPolicies().Create(n.t.Context(), &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: n.Namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Validations: []admissionv1.Validation{{Expression: `object.spec.containers.all(c, c.image != "` + image + `")`, Message: "image " + image + " is forbidden"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(n.permit)
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(n.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: n.Namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	poll.Eventually(n.t, "the policy is in force", func() bool {
		_, err := s.Admin.CoreV1().Pods(n.Namespace).Patch(n.t.Context(), n.pod().Name, types.StrategicMergePatchType,
			[]byte(`{"spec":{"containers":[{"name":"app","image":"`+image+`"}]}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "is forbidden")
	})
}

func (n *node) permit() {
	ctx := context.WithoutCancel(n.t.Context()) // that of a cleanup is over
	client := s.Admin.AdmissionregistrationV1()
	_ = client.ValidatingAdmissionPolicyBindings().Delete(ctx, n.Namespace, metav1.DeleteOptions{}) // there may be none any more
	_ = client.ValidatingAdmissionPolicies().Delete(ctx, n.Namespace, metav1.DeleteOptions{})
}
