package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// soon tells a kubelet whose own questions are answered, which takes well below a second on a
// quiet machine, from one whose questions are not: that takes 55 s.
const soon = 40 * time.Second

// TestKubeletsOwnAPIAnswersWithoutTheCloud asks kubelets for logs: the plain one, and one
// that uses the hub's TLS port. Each is restarted without the cloud, so that it remembers
// nothing by itself.
func TestKubeletsOwnAPIAnswersWithoutTheCloud(t *testing.T) {
	for name, node := range map[string]string{"on the plain port": "node3", "on the TLS port": onTLS} {
		t.Run(name, func(t *testing.T) {
			e := newEdge(t, "kubelet-api-"+node, node)
			e.create("app", nil)
			e.running("app")
			reader, stranger, unused := e.reader("reader"), e.accountToken("default"), e.accountToken("default")
			e.expectLogs(map[string]int{reader: http.StatusOK, stranger: http.StatusForbidden, "abc": http.StatusUnauthorized})

			e.cut("refused")
			if err := e.node.KubeletProcess().Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			e.expectLogs(map[string]int{
				reader: http.StatusOK, stranger: http.StatusForbidden, unused: http.StatusUnauthorized, "abc": http.StatusUnauthorized,
			})
			if code, body, took := e.askKubelet(t.Context(), http.MethodPost, "exec", reader); code != http.StatusForbidden || took > soon {
				t.Errorf("exec, which the reader may not: %d %s after %v", code, body, took)
			}
		})
	}
}

// expectLogs waits until kubelet answers so to the holders of these tokens, each time soon.
func (e *edge) expectLogs(want map[string]int) {
	e.t.Helper()
	for token, code := range want {
		eventually(e.t, fmt.Sprintf("kubelet answers %d", code), func(ctx context.Context) string {
			got, body, took := e.askKubelet(ctx, http.MethodGet, "containerLogs", token)
			if took > soon {
				e.t.Errorf("kubelet took %v to say %d %s", took, got, body)
			}
			if got == code {
				return ""
			}
			return fmt.Sprintf("%d %s", got, body)
		})
	}
}

// askKubelet sends a request about the pod's container to kubelet itself.
func (e *edge) askKubelet(ctx context.Context, method, what, token string) (code int, body string, took time.Duration) {
	e.t.Helper()
	began := time.Now()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+net.JoinHostPort(e.node.IP(), "10250")+"/"+what+"/"+e.ns+"/app/app", nil)
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is this test's kubelet
	}}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error(), time.Since(began)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error(), time.Since(began)
	}
	return res.StatusCode, string(text), time.Since(began)
}

// reader makes a service account that may read the kubelet's API, and returns a token of it.
func (e *edge) reader(name string) string {
	e.t.Helper()
	ctx, rbac := e.t.Context(), env.client.RbacV1()
	if _, err := env.client.CoreV1().ServiceAccounts(e.ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: e.ns}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/proxy"}, Verbs: []string{"get"}}}}
	if _, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: e.ns},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: e.ns}},
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() {
		for _, err := range []error{
			rbac.ClusterRoleBindings().Delete(context.Background(), e.ns, metav1.DeleteOptions{}),
			rbac.ClusterRoles().Delete(context.Background(), e.ns, metav1.DeleteOptions{}),
		} {
			if err != nil {
				e.t.Error(err)
			}
		}
	})
	return e.accountToken(name)
}

// accountToken is one of a service account's, another each time.
func (e *edge) accountToken(account string) string {
	e.t.Helper()
	token, err := env.client.CoreV1().ServiceAccounts(e.ns).CreateToken(e.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	return token.Status.Token
}
