package certificate

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/metric"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// node is a node with a hub, and a pod that is bound to it.
type node struct {
	*hubproc.Hub
	t         *testing.T
	api       *caller // of the node's HTTP API: one, since it is asked often
	bootstrap string  // --bootstrap-file
	token     string  // in it
	mark      int64   // in the audit log
	ns        string
}

// newNode prepares a node and does not start its hub, nor write its bootstrap file.
func newNode(t *testing.T, options hubproc.Options) *node {
	t.Helper()
	n := &node{t: t}
	options.Binary, options.Server = env.hubBin, env.ServerURL()
	n.Hub = hubproc.New(t, options)
	n.api = n.caller(n.API, "", nil)
	n.remark()
	n.ns = "ns-" + n.Name
	if _, err := env.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	n.createPod("app")
	return n
}

// newBootstrapped is newNode for one that asks for its certificate.
func newBootstrapped(t *testing.T) *node {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bootstrap.kubeconfig")
	n := newNode(t, hubproc.Options{Args: []string{"--bootstrap-file=" + file}})
	n.bootstrap = file
	n.writeBootstrap(createToken(t))
	return n
}

// createToken makes a bootstrap token, as `kubeadm token create` does.
func createToken(t *testing.T) string {
	t.Helper()
	id, secret := fmt.Sprintf("%06x", rand.Uint32()&0xffffff), fmt.Sprintf("%016x", rand.Uint64())
	_, err := env.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": kubeadmGroup,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return id + "." + secret
}

// writeBootstrap puts a bootstrap kubeconfig there, with a token.
func (n *node) writeBootstrap(token string) {
	n.t.Helper()
	n.token = token
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: env.ServerURL(), CertificateAuthority: env.CAFile()}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, n.bootstrap); err != nil {
		n.t.Fatal(err)
	}
}

// bootstrapUser is whom the apiserver takes the bootstrap token's bearer for.
func (n *node) bootstrapUser() string {
	id, _, _ := strings.Cut(n.token, ".")
	return "system:bootstrap:" + id
}

// certFile is where the hub keeps its certificate.
func (n *node) certFile() string { return filepath.Join(n.Root, "pki", "hub.kubeconfig") }

// certificate is what is in it.
func (n *node) certificate() string {
	n.t.Helper()
	data, err := os.ReadFile(n.certFile())
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

// replaceCertificate puts another certificate in its place, which ends then. The hub is not running.
func (n *node) replaceCertificate(end time.Time) {
	n.t.Helper()
	certFile, keyFile, err := env.ClientCertUntil(end, n.User, "system:nodes")
	if err != nil {
		n.t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(n.certFile())
	if err != nil {
		n.t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.ClientCertificate, user.ClientKey = certFile, keyFile
		user.ClientCertificateData, user.ClientKeyData = nil, nil
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil { // the data, not the names
		n.t.Fatal(err)
	}
	if err := clientcmd.WriteToFile(*config, n.certFile()); err != nil {
		n.t.Fatal(err)
	}
}

// makeDue has the hub renew its certificate as soon as it is started: it counts from when the
// certificate was written.
func (n *node) makeDue() {
	n.t.Helper()
	longAgo := time.Now().AddDate(-10, 0, 0) // their life is a year
	if err := os.Chtimes(n.certFile(), longAgo, longAgo); err != nil {
		n.t.Fatal(err)
	}
}

// approveRenewals binds for this node what `kubeadm init` binds for all nodes
// (kubeadm:node-autoapprove-certificate-rotation): before, its renewals wait.
func (n *node) approveRenewals() {
	n.t.Helper()
	_, err := env.client.RbacV1().ClusterRoleBindings().Create(n.t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "renewals-" + n.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: renewalRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: n.User}},
	}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
}

// createPod makes a pod that is bound to the node.
func (n *node) createPod(name string) {
	n.t.Helper()
	zero := int64(0)
	_, err := env.client.CoreV1().Pods(n.ns).Create(n.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: n.Name, Containers: []corev1.Container{{Name: "app", Image: "app"}}, TerminationGracePeriodSeconds: &zero,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
}

// podsPath is what a kubelet lists and watches.
func (n *node) podsPath() string { return "/api/v1/pods?fieldSelector=spec.nodeName%3D" + n.Name }

// readyz is the hub's answer at /readyz.
func (n *node) readyz() answer {
	n.t.Helper()
	a := n.api.get(n.t, "/v1/readyz")
	return answer{a.code, strings.TrimSpace(a.body)}
}

// awaitReadyz waits until readyz is answered so.
func (n *node) awaitReadyz(code int, parts ...string) {
	n.t.Helper()
	var last answer
	defer func() { n.t.Logf("readyz: %v", last) }()
	poll.Eventually(n.t, fmt.Sprintf("readyz says %d %q", code, parts), func() bool {
		last = n.readyz()
		return last.code == code && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(last.body, part) })
	})
}

// awaitOK waits until all is well.
func (n *node) awaitOK() {
	n.t.Helper()
	poll.Eventually(n.t, "readyz says OK", func() bool { return n.readyz() == answer{http.StatusOK, "OK"} })
}

// metric is the sum of a metric of the hub's.
func (n *node) metric(name string) float64 {
	n.t.Helper()
	a := n.api.get(n.t, "/metrics")
	sum, found, err := metric.Sum(a.body, name)
	if err != nil || !found {
		n.t.Fatalf("metric %s: %v, %v", name, found, err)
	}
	return sum
}

// remark has asked begin here.
func (n *node) remark() {
	n.t.Helper()
	var err error
	if n.mark, err = env.audit.Mark(); err != nil {
		n.t.Fatal(err)
	}
}

// asked is the requests that the apiserver has seen for this node since the mark: those of
// the node, and those that bootstrappers made for it.
func (n *node) asked(matches func(audit.Request) bool) []audit.Request {
	n.t.Helper()
	all, err := env.audit.Since(n.mark)
	if err != nil {
		n.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r audit.Request) bool { return !matches(r) })
}

// certificatesAskedFor is by whom, one for each request that was made.
func (n *node) certificatesAskedFor() (users []string) {
	n.t.Helper()
	for _, r := range n.asked(func(r audit.Request) bool {
		return r.ObjectRef.Resource == "certificatesigningrequests" && r.Verb == "create" && (r.User.Username == n.User || r.User.Username == n.bootstrapUser())
	}) {
		users = append(users, r.User.Username)
	}
	return users
}

// account is a token of a pod's: it may read pods.
func (n *node) account() (token string) {
	n.t.Helper()
	accounts := env.client.CoreV1().ServiceAccounts(n.ns)
	poll.Eventually(n.t, "the namespace has a service account", func() bool {
		made, err := accounts.CreateToken(n.t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = made.Status.Token
		}
		return err == nil
	})
	return token
}

// cut takes the cloud away.
func (n *node) cut() {
	n.t.Helper()
	if err := n.Link.Refuse(); err != nil {
		n.t.Fatal(err)
	}
	n.Link.Reset()
	n.awaitReadyz(http.StatusOK, "offline since")
}

func (n *node) connect() {
	n.t.Helper()
	if err := n.Link.Up(); err != nil {
		n.t.Fatal(err)
	}
}
