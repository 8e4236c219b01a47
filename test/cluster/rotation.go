package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// firstLife is how long a kubelet's first certificate is good that is to be rotated. It
// began a day ago, so that more than nine tenths of its life have passed.
const firstLife = 10 * time.Minute

func (n *Node) onTLS() bool { return n.cluster.options.kubeletOnTLS(n.name) }

// ServingCert is the hub's certificate on its TLS port, which its clients pin.
func (n *Node) ServingCert() string { return filepath.Join(n.HubDir(), "pki", "serving.crt") }

// KubeletCert is the file with the client certificate, and its key, that kubelet has got
// by rotating the one that it started with; an error where it has not yet.
func (n *Node) KubeletCert() (string, error) {
	folder := n.path("var-lib", "kubelet", "pki")
	target, err := os.Readlink(filepath.Join(folder, "kubelet-client-current.pem")) // as the node sees it
	if err != nil {
		return "", fmt.Errorf("find kubelet's certificate: %w", err)
	}
	return filepath.Join(folder, filepath.Base(target)), nil
}

// wayToHub is how kubelet reaches the hub.
func (n *Node) wayToHub() (kubeconfig, error) {
	if !n.onTLS() {
		return kubeconfig{server: n.HubURL()}, nil
	}
	cert, key, err := n.KubeletCertUntil(time.Now().Add(firstLife))
	return kubeconfig{server: n.SecureURL(), caFile: n.ServingCert(), serverName: hubName, certFile: cert, keyFile: key}, err
}

// hubName is a secret on nodes that are not under test: edgehub install chooses it.
const hubName = "abcdefghijklmnopqrstuvwxyz.edgehub.invalid"

// KubeletCertUntil replaces the client certificate that kubelet's kubeconfig names, with which kubelet starts until
// it has rotated it.
func (n *Node) KubeletCertUntil(until time.Time) (certFile, keyFile string, err error) {
	return n.cluster.control.authority.issue(n.name+"-kubelet-client", identity{
		name: "system:node:" + n.name, groups: []string{"system:nodes"}, until: until,
	})
}

// allowRotation has the certificates approved that nodes ask for in their own name, as
// kubeadm does.
func (n *Node) allowRotation(ctx context.Context) error {
	if !n.onTLS() {
		return nil
	}
	_, err := n.cluster.control.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:node-autoapprove-certificate-rotation"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("allow kubelet to rotate its certificate: %w", err)
	}
	return nil
}
