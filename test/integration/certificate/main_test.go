// Package certificate shows by its tests how a hub is let in by the cloud: with a
// certificate of its own that it asks for, as kubelet does in a cluster of kubeadm's, or
// with kubelet's; and what happens when that expires, in the middle of an outage or not.
//
// The hub is a process of its own. The control plane is real, approvers and signer among
// it. All tests run beside each other.
package certificate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	// life is that of a certificate that expires while a test runs: long enough for what has
	// to be done before, also where the machine is busy.
	life = 2 * time.Minute
	// atOnce is how many tests run beside each other: they wait for certificates to end.
	atOnce = 12
)

// productRoot is the product's module, seen from this folder.
const productRoot = "../../.."

type environment struct {
	*cluster.Cluster
	client kubernetes.Interface // the administrator's, straight to the apiserver
	audit  *audit.Log
	hubBin string
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(atOnce)); err != nil {
		panic(err) // it is a number
	}
	os.Exit(testmain.Main(m, "certificate", prepare))
}

// auditRules leave out what the control plane asks by itself, and who is well.
const auditRules = `
  - level: None
    users: [admin, "system:apiserver", "system:kube-scheduler", "system:kube-controller-manager"]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: None
    nonResourceURLs: ["/livez", "/readyz", "/healthz"]
  - level: Metadata
`

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	if env.audit, err = audit.NewAnswered(filepath.Join(s.Dir, "audit"), auditRules); err != nil {
		return err
	}
	env.Cluster, err = s.StartCluster(ctx, cluster.Options{
		APIServerArgs: append(env.audit.Args(), "--enable-bootstrap-token-auth"),
		// It would delete the pods after a minute, since there are no Node objects.
		ControllerManagerArgs: []string{"--controllers=*,-pod-garbage-collector-controller"},
	})
	if err != nil {
		return err
	}
	if env.client, err = kubernetes.NewForConfig(env.AdminConfig()); err != nil {
		return err
	}
	return bind(ctx)
}

const (
	// kubeadmGroup is the group of the tokens of kubeadm, whose requests are approved.
	kubeadmGroup = "system:bootstrappers:kubeadm:default-node-token"
	// renewalRole is the role of those whose renewals are approved.
	renewalRole = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
)

// bind binds what `kubeadm init` binds (kubeadm:kubelet-bootstrap and those after it) but
// for renewals, see approveRenewals.
func bind(ctx context.Context) error {
	for name, b := range map[string]struct{ role, group string }{
		"kubeadm:kubelet-bootstrap":          {"system:node-bootstrapper", kubeadmGroup},
		"kubeadm:node-autoapprove-bootstrap": {"system:certificates.k8s.io:certificatesigningrequests:nodeclient", kubeadmGroup},
		"service-accounts":                   {"view", "system:serviceaccounts"},
	} {
		_, err := env.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: b.role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: b.group}},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("bind as kubeadm does: %w", err)
		}
	}
	return nil
}
