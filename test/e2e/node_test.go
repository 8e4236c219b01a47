package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

func TestNodesAreReadyThroughTheirHubs(t *testing.T) {
	for _, node := range env.Nodes() {
		object, err := env.client.CoreV1().Nodes().Get(t.Context(), node.Name(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !nodeReady(object) {
			t.Errorf("%s is not Ready: %+v", node.Name(), object.Status.Conditions)
		}
		// The watch that a kubelet keeps on its pods is open, in the hub.
		code, metrics := rawclient.Ask(t.Context(), http.MethodGet, node.APIURL()+"/metrics")
		if code != http.StatusOK || !strings.Contains(metrics, `edgehub_proxy_requests_in_flight{verb="watch"}`) {
			t.Errorf("%s: the hub has no watch open: %d %.300s", node.Name(), code, metrics)
		}
		for path, want := range map[string]string{"/v1/healthz": "OK", "/v1/readyz": "OK"} {
			if code, body := rawclient.Ask(t.Context(), http.MethodGet, node.APIURL()+path); code != http.StatusOK || strings.TrimSpace(body) != want {
				t.Errorf("%s%s: %d %q", node.Name(), path, code, body)
			}
		}
	}
}

func nodeReady(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestPodComesChangesAndGoes(t *testing.T) {
	ns := namespace(t, "pod-life")
	pods := env.client.CoreV1().Pods(ns)
	template := podTemplate()
	template.Spec.NodeName = "node1"
	if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: template.Labels}, Spec: template.Spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := readyPodOn(t, ns, "node1", "")
	answers(t, pod, "v1")

	patch := fmt.Sprintf(`{"spec":{"containers":[{"name":"app","image":%q}]}}`, env.Image("v2"))
	if _, err := pods.Patch(t.Context(), "app", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	answers(t, pod, "v2")

	if err := pods.Delete(t.Context(), "app", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone", func(ctx context.Context) string {
		_, err := pods.Get(ctx, "app", metav1.GetOptions{})
		if err == nil {
			return "it is still there"
		}
		if apierrors.IsNotFound(err) {
			return ""
		}
		return err.Error()
	})
}

// adminToken is a token of the namespace's service account, which may do everything.
func adminToken(t *testing.T, ns string) string {
	t.Helper()
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: ns}},
	}
	bindings := env.client.RbacV1().ClusterRoleBindings()
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindings.Delete(context.Background(), ns, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	token, err := env.client.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// hubKubeconfig lets kubectl through the TLS port of node's hub.
func hubKubeconfig(t *testing.T, ns string, node *cluster.Node) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: hub, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {token: %q}}]
contexts: [{name: hub, context: {cluster: hub, user: admin, namespace: %q}}]
current-context: hub
`, node.SecureURL(), node.ServingCert(), adminToken(t, ns), ns)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestKubectlThroughTheHub runs what streams: exec, attach, logs -f and
// port-forward, over WebSocket as kubectl does by default, and over SPDY.
func TestKubectlThroughTheHub(t *testing.T) {
	for protocol, websockets := range map[string]string{"websocket": "true", "spdy": "false"} {
		t.Run(protocol, func(t *testing.T) {
			ns := namespace(t, "kubectl-"+protocol)
			template := podTemplate()
			template.Spec.NodeName = "node1"
			if _, err := env.client.CoreV1().Pods(ns).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "app", Labels: template.Labels}, Spec: template.Spec}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			pod := readyPodOn(t, ns, "node1", "")
			k := &kubectl{kubeconfig: hubKubeconfig(t, ns, env.Node("node1")), env: []string{
				"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=" + websockets, "KUBECTL_PORT_FORWARD_WEBSOCKETS=" + websockets,
			}}
			if out := k.run(t, "", "get", "pod", "app", "-o", "name"); out != "pod/app\n" {
				t.Errorf("get: %q", out)
			}
			if out := k.run(t, "", "exec", "app", "--", "/app", "version"); out != "v1\n" {
				t.Errorf("exec: %q", out)
			}
			large := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB
			if out := k.run(t, large, "exec", "-i", "app", "--", "/app", "cat"); out != large {
				t.Errorf("exec -i: %d bytes came back of %d", len(out), len(large))
			}
			k.followLogs(t, pod)
			k.portForward(t)
		})
	}
}

type kubectl struct {
	kubeconfig string
	env        []string
}

func (k *kubectl) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, env.KubectlPath(), append([]string{"--kubeconfig=" + k.kubeconfig}, args...)...)
	cmd.Env = append(os.Environ(), k.env...)
	return cmd
}

func (k *kubectl) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := k.command(ctx, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// stream runs kubectl and hands out its lines as they come.
func (k *kubectl) stream(t *testing.T, args ...string) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	cmd := k.command(ctx, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return bufio.NewScanner(out)
}

// followLogs reads a line that was not there when the logs were opened.
func (k *kubectl) followLogs(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	lines := k.stream(t, "logs", "-f", "app")
	if !lines.Scan() || !strings.Contains(lines.Text(), "serving") {
		t.Fatalf("logs -f begins with %q, %v", lines.Text(), lines.Err())
	}
	answers(t, pod, "v1") // which the app logs
	if !lines.Scan() || !strings.Contains(lines.Text(), "request") {
		t.Errorf("logs -f goes on with %q, %v", lines.Text(), lines.Err())
	}
}

func (k *kubectl) portForward(t *testing.T) {
	t.Helper()
	lines := k.stream(t, "port-forward", "pod/app", ":8080")
	if !lines.Scan() {
		t.Fatalf("port-forward says nothing: %v", lines.Err())
	}
	// Forwarding from 127.0.0.1:40123 -> 8080
	words := strings.Fields(lines.Text())
	if len(words) < 3 {
		t.Fatalf("port-forward says %q", lines.Text())
	}
	for range 3 {
		if code, body := rawclient.Ask(t.Context(), http.MethodGet, "http://"+words[2]+"/"); code != http.StatusOK || body != "v1\n" {
			t.Fatalf("through port-forward: %d %q", code, body)
		}
	}
}
