package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/freeport"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// TestCallersInPodsAreThemselves has a pod on the host's network, as root, ask the
// hub on loopback, beside a program of the host.
func TestCallersInPodsAreThemselves(t *testing.T) {
	node, ns := env.Node("node1"), namespace(t, "callers")
	mayListConfigMaps(t, ns)
	at := fmt.Sprintf("%s:%d", node.Addr(), freeport.On127(t))
	template := podTemplate()
	template.Spec.NodeName, template.Spec.HostNetwork = node.Name(), true
	template.Spec.Containers[0].Args, template.Spec.Containers[0].Ports = []string{"-listen=" + at}, nil
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: template.Labels}, Spec: template.Spec}
	if _, err := env.client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod = readyPodOn(t, ns, node.Name(), "")
	ask := func(path, token string) (int, string) {
		return rawclient.Ask(t.Context(), http.MethodGet, "http://"+at+"/ask?"+url.Values{"url": {node.HubURL() + path}, "token": {token}}.Encode())
	}
	eventually(t, "the pod's app serves", func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodGet, "http://"+at+"/healthz")
		if code == http.StatusOK {
			return ""
		}
		return fmt.Sprintf("%d %s", code, body)
	})

	const token = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	secrets, configMaps, ownNode := "/api/v1/namespaces/"+ns+"/secrets", "/api/v1/namespaces/"+ns+"/configmaps", "/api/v1/nodes/"+node.Name()
	for _, path := range []string{secrets, ownNode} {
		code, body := ask(path, "")
		if code != http.StatusUnauthorized || !strings.Contains(body, "the pod with UID "+string(pod.UID)) || !strings.Contains(body, "send a bearer token") {
			t.Errorf("a pod without credentials asked for %s and got %d %s", path, code, body)
		}
	}
	for path, want := range map[string]int{secrets: http.StatusForbidden, configMaps: http.StatusOK} {
		if code, body := ask(path, token); code != want {
			t.Errorf("a pod with its token asked for %s and got %d %s", path, code, body)
		}
	}
	if code, body := rawclient.Ask(t.Context(), http.MethodGet, node.HubURL()+ownNode); code != http.StatusOK {
		t.Errorf("a program of the host got %d %s", code, body)
	}
	if on, err := metric(t.Context(), node, "edgehub_proxy_caller_check"); err != nil || on != 1 {
		t.Errorf("edgehub_proxy_caller_check is %v, %v", on, err)
	}
}

// mayListConfigMaps is what the namespace's service account may do.
func mayListConfigMaps(t *testing.T, ns string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "reader"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}}
	if _, err := env.client.RbacV1().Roles(ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: ns}},
	}
	if _, err := env.client.RbacV1().RoleBindings(ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
