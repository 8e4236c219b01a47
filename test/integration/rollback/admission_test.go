package rollback_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cmd/edgehubctl/view"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// Patches of new pods, as Kyverno's replace-image-registry and a service mesh make them.
const (
	rewriteImages = `[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: object.spec.containers[0].image.replace("app:", "site.example.com/app:")}]`
	injectMesh    = `[JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{name: "mesh", image: "mesh:VERSION"}}]`
)

// mutate has the apiserver patch the pods that are created in the node's namespace, and no others, until the end of the test,
// or the next call. It returns when a new pod has this image.
func (n *node) mutate(patch, image string) {
	n.t.Helper()
	meta := metav1.ObjectMeta{Name: n.Namespace}
	reinvocation, fail := admissionv1.NeverReinvocationPolicy, admissionv1.Fail
	api := s.Admin.AdmissionregistrationV1()
	n.unmutate(n.t.Context())
	_, err := api.MutatingAdmissionPolicies().Create(n.t.Context(), &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: &fail, ReinvocationPolicy: reinvocation,
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: n.Namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}},
		},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: patch}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { n.unmutate(context.Background()) })
	if _, err := api.MutatingAdmissionPolicyBindings().Create(n.t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: n.Namespace}}, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	poll.Eventually(n.t, "a new pod has image "+image, func() bool {
		pod, err := s.Admin.CoreV1().Pods(n.Namespace).Create(n.t.Context(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Spec: n.Get().Spec.Template.Spec}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == image })
	})
}

func (n *node) unmutate(ctx context.Context) {
	api := s.Admin.AdmissionregistrationV1()
	_ = api.MutatingAdmissionPolicyBindings().Delete(ctx, n.Namespace, metav1.DeleteOptions{}) // there may be none
	_ = api.MutatingAdmissionPolicies().Delete(ctx, n.Namespace, metav1.DeleteOptions{})
}

// A policy that looks at CREATE only does not see the controller's patch, and the node may not reach the registry that the
// template names.
func TestAnOwnerGoesBackToTheImageThatIsAdmitted(t *testing.T) {
	n := newNode(t)
	v1 := hash(n.pod())
	n.mutate(rewriteImages, "site.example.com/app:1")
	pod := n.upgrade(`"image":"app:2"`)
	if got := pod.Spec.Containers[0].Image; got != "site.example.com/app:2" {
		t.Fatalf("the new pod has image %s", got)
	}
	n.rollback(pod, http.StatusAccepted, "to revision "+v1+" requested")
	back := n.rolledBack(corev1.ConditionTrue, "RolledBackByOwner")
	if back.UID != pod.UID || hash(back) != v1 || back.Spec.Containers[0].Image != "site.example.com/app:1" {
		t.Errorf("pod %s has image %s, revision %s; want pod %s and what admission makes of app:1", back.UID, back.Spec.Containers[0].Image, hash(back), pod.UID)
	}
	n.shows(back, api.Done, "")
}

// Whoever asks for what admission refuses is told so, in the apiserver's words.
func TestARollbackToWhatAdmissionRefusesIsRefused(t *testing.T) {
	n := newNode(t)
	v1 := hash(n.pod())
	pod := n.upgrade(`"image":"app:2"`)
	n.mutate(strings.Replace(rewriteImages, `value: `, `value: object.spec.containers[0].image == "app:1" ? "" : `, 1), "site.example.com/app:2")
	if code, body := n.call(http.MethodPost, api.RollbackPath(n.Namespace, pod.Name)); code != http.StatusConflict ||
		!strings.Contains(body, "was not rolled back to revision "+v1+": the apiserver refuses the earlier version: ") {
		t.Errorf("got %d %q", code, body)
	}
	if now := n.waitFor("the wish is over", func(pod *corev1.Pod) bool { return !wished(pod) }); hash(now) != hash(pod) {
		t.Errorf("the pod was changed: revision %s", hash(now))
	}
}

// What a service mesh injects is part of the upgrade: its new image is pulled before, and owners see it.
func TestTheUpgradeIsToWhatAdmissionInjects(t *testing.T) {
	n := newNode(t)
	n.mutate(strings.Replace(injectMesh, "VERSION", "1", 1), "mesh:1")
	pod := n.upgrade(`"image":"app:2"`)
	if len(pod.Spec.Containers) != 2 {
		t.Fatalf("the new pod has %+v", pod.Spec.Containers)
	}
	n.mutate(strings.Replace(injectMesh, "VERSION", "2", 1), "mesh:2")
	n.SetImage("app:3")
	pod = n.waitFor("the upgrade is offered", func(pod *corev1.Pod) bool {
		target, ok, err := api.TargetOf(pod)
		return ok && err == nil && target.Admitted
	})
	target, _, _ := api.TargetOf(pod)
	if got := target.Images(); !slices.Equal(got, []api.TargetImage{{Name: "app", Image: "app:3"}, {Name: "mesh", Image: "mesh:2"}}) {
		t.Errorf("the node pulls %v", got)
	}
	var changes string
	poll.Eventually(t, "edgehubctl pods shows the images", func() bool {
		_, body := n.call(http.MethodGet, api.Pods)
		var list corev1.PodList
		if json.Unmarshal([]byte(body), &list) != nil || len(list.Items) != 1 {
			return false
		}
		report := view.PodOf(&list.Items[0], nil)
		changes = report.ImageChanges(view.MaxChanges)
		return strings.Contains(changes, "app:")
	})
	if changes != "app:2 -> 3, mesh:1 -> 2" {
		t.Errorf("edgehubctl pods shows %q", changes)
	}
}

// What the cluster cannot do is said before anybody asks.
func TestThereIsNoWayBackToARevisionThatTheClusterHasNoMore(t *testing.T) {
	n := newNode(t)
	v1 := hash(n.pod())
	n.Patch(`{"spec":{"revisionHistoryLimit":0}}`)
	pod := n.upgrade(`"image":"app:2"`)
	const words = "the cluster does not have that revision any more (revisionHistoryLimit)"
	poll.Eventually(t, "the history says so", func() bool {
		list := n.history()
		return len(list) == 2 && list[0].Blocked == "" && list[1].Revision == v1 && strings.Contains(list[1].Blocked, words)
	})
	n.rollback(pod, http.StatusConflict, "cannot go back to revision "+v1+": "+words)
	if wished(n.pod()) {
		t.Error("it was asked for all the same")
	}
}

// kubelet restarts a native sidecar in place, from a version on.
func TestANativeSidecarIsRolledBack(t *testing.T) {
	n := newNode(t)
	sidecar := func(app, log string) string {
		return `"image":"app:` + app + `"}],"initContainers":[{"name":"log","image":"log:` + log + `","restartPolicy":"Always"`
	}
	first := hash(n.upgrade(sidecar("2", "1")))
	pod := n.upgrade(sidecar("3", "2"))
	kubelet := func(version string) {
		t.Helper()
		if _, err := s.Admin.CoreV1().Nodes().Patch(t.Context(), n.hub.Name, types.MergePatchType,
			[]byte(`{"status":{"nodeInfo":{"kubeletVersion":"`+version+`"}}}`), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	blocked := func(words string) {
		t.Helper()
		poll.Eventually(t, "the history says: "+words, func() bool {
			list := n.history()
			return len(list) > 1 && list[1].Revision == first && (list[1].Blocked == "") == (words == "") && strings.Contains(list[1].Blocked, words)
		})
	}
	kubelet("v1.31.9")
	blocked("only kubelet 1.32 or later restarts it in place")
	n.rollback(pod, http.StatusConflict, "only kubelet 1.32 or later")
	kubelet("v1.32.0")
	blocked("")
	n.rollback(pod, http.StatusAccepted, "to revision "+first+" requested")
	back := n.rolledBack(corev1.ConditionTrue, "RolledBackByOwner")
	if back.UID != pod.UID || back.Spec.Containers[0].Image != "app:2" || back.Spec.InitContainers[0].Image != "log:1" {
		t.Errorf("the pod has %s and %s", back.Spec.Containers[0].Image, back.Spec.InitContainers[0].Image)
	}
}
