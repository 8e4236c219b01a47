package install

import (
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const bootstrappers = "system:bootstrappers"

// bootstrapFile makes a token as kubeadm token create does, with the rights that kubeadm
// init has given to its group, and writes the kubeconfig with it.
func (n *node) bootstrapFile() string {
	n.t.Helper()
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef", Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"},
	}
	if _, err := n.client.CoreV1().Secrets(token.Namespace).Create(n.t.Context(), token, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	for name, role := range map[string]string{
		"kubeadm:kubelet-bootstrap":          "system:node-bootstrapper",
		"kubeadm:node-autoapprove-bootstrap": "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
	} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: bootstrappers}},
		}
		if _, err := n.client.RbacV1().ClusterRoleBindings().Create(n.t.Context(), binding, metav1.CreateOptions{}); err != nil {
			n.t.Fatal(err)
		}
	}
	const file = "/var/lib/kubelet/bootstrap.conf"
	n.write(file, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: cloud
  cluster:
    certificate-authority-data: %s
    server: https://%s
    tls-server-name: kubernetes
contexts:
- name: bootstrap
  context: {cluster: cloud, user: bootstrap}
current-context: bootstrap
users:
- name: bootstrap
  user: {token: abcdef.0123456789abcdef}
`, base64.StdEncoding.EncodeToString(n.read(n.cluster.CAFile())), n.link.Addr()))
	return file
}

// wasBootstrapped fails the test unless somebody has got a certificate with the token.
func (n *node) wasBootstrapped() {
	n.t.Helper()
	requests, err := n.client.CertificatesV1().CertificateSigningRequests().List(n.t.Context(), metav1.ListOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range requests.Items {
		if r := &requests.Items[i]; r.Spec.Username == "system:bootstrap:abcdef" && len(r.Status.Certificate) > 0 {
			return
		}
	}
	n.t.Errorf("no certificate was issued to the token: %d requests", len(requests.Items))
}
