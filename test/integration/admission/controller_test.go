package admission

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// The policy narrows the controller's right to patch pods to what it is there for, and nobody else's.
func TestWhatTheControllerMayChangeOfAPod(t *testing.T) {
	const policy, user = "edgehub-controller-pods", "system:serviceaccount:edgehub-system:edgehub-controller"
	as := func(name string) *kubernetes.Clientset {
		config := rest.CopyConfig(env.cluster.AdminConfig())
		config.Impersonate.UserName = name
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = env.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	controller, other := as(user), as("someone")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "kept", Labels: map[string]string{"app": "a"}, Annotations: map[string]string{"note": "mine"}}}
	pod.Spec = corev1.PodSpec{NodeName: "nowhere", AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "app", Image: "app:1"}}, InitContainers: []corev1.Container{{Name: "first", Image: "first:1"}}}
	pod, err := env.admin.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	unbound := pod.DeepCopy()
	unbound.ObjectMeta, unbound.Spec.NodeName = metav1.ObjectMeta{Name: "unbound"}, ""
	if _, err = env.admin.CoreV1().Pods(namespace).Create(t.Context(), unbound, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(client kubernetes.Interface, name, text string) error {
		_, err := client.CoreV1().Pods(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	const image = `{"spec":{"containers":[{"name":"app","image":"other"}]}}`
	poll.Eventually(t, "the policy is in force and the accounts have rights", func() bool {
		return refusalBy(policy, patch(controller, "kept", image)) != "" && patch(other, "kept", image) == nil
	})
	seconds := func(key, value string) string {
		var out []string
		for _, k := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, key} {
			if k != "" {
				out = append(out, `{"key":"`+k+`","operator":"Exists","effect":"NoExecute"`+value+`}`)
			}
		}
		return `{"metadata":{"annotations":{"apps.openyurt.io/original-not-ready-toleration-duration":"300"}},"spec":{"tolerations":[` + strings.Join(out, ",") + `]}}`
	}
	for name, text := range map[string]string{"for ever": seconds("", ""), "for an hour": seconds("", `,"tolerationSeconds":3600`), "not at all": seconds("", `,"tolerationSeconds":0`)} {
		if err := patch(controller, "kept", text); err != nil {
			t.Errorf("it may not have a pod tolerate the taints %s: %v", name, err)
		}
	}
	for name, tt := range map[string]struct{ pod, text string }{
		"an init image":             {"kept", `{"spec":{"initContainers":[{"name":"first","image":"other"}]}}`},
		"a deadline":                {"kept", `{"spec":{"activeDeadlineSeconds":1}}`},
		"another toleration":        {"kept", seconds("gpu", "")},
		"a second one of a taint":   {"kept", seconds(corev1.TaintNodeUnreachable, `,"tolerationSeconds":1`)},
		"a label":                   {"kept", `{"metadata":{"labels":{"app":"b"}}}`},
		"a finalizer":               {"kept", `{"metadata":{"finalizers":["example.com/never"]}}`},
		"an owner":                  {"kept", `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"x","uid":"u"}]}}`},
		"an annotation":             {"kept", `{"metadata":{"annotations":{"note":"yours"}}}`},
		"an annotation that goes":   {"kept", `{"metadata":{"annotations":{"note":null}}}`},
		"an annotation that is new": {"kept", `{"metadata":{"annotations":{"new":""}}}`},
		"a pod that no node has":    {"unbound", seconds("", "")},
	} {
		if err := patch(controller, tt.pod, tt.text); refusalBy(policy, err) == "" {
			t.Errorf("%s: got %v, want a refusal by the policy", name, err)
		}
	}
}
