// Package controller_test runs the controller against a real apiserver and a
// real controller manager, as the ServiceAccount of deploy/ and with its rights:
// a rule that is missing there fails these tests.
//
// Nodes are objects without a kubelet. Pods are bound to them and stay Pending,
// which is all the controller looks at; a test that wants a pod gone deletes it
// without grace. The tests share a cluster and do not run in parallel, since each
// controller sees every DaemonSet. Each test that runs a controller looks for what it
// left behind, so TestMain need not.
package controller_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

// As in deploy/.
const (
	systemNamespace = "edgehub-system"
	account         = "edgehub-controller"
)

// nodes is how many pods each DaemonSet has.
const nodes = 3

// moduleRoot is the product's, seen from this folder.
const moduleRoot = "../../.."

// env is what all tests share.
var env struct {
	cluster *cluster.Cluster
	admin   *kubernetes.Clientset
	token   string // of the ServiceAccount in deploy/
	binary  string // edgehub-controller

	adminTransport http.RoundTripper
	ca             []byte // has signed the apiserver's certificate
}

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "controller", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.binary, err = s.Build(ctx, moduleRoot, "edgehub-controller"); err != nil {
		return err
	}
	if env.cluster, err = s.StartCluster(ctx, cluster.Options{}); err != nil {
		return err
	}
	return furnish(ctx)
}

// furnish applies deploy/, gets a token for its ServiceAccount, and makes nodes.
func furnish(ctx context.Context) error {
	config, err := adminConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	env.ca, env.adminTransport = config.CAData, client.Transport
	if env.admin, err = kubernetes.NewForConfigAndClient(config, client); err != nil {
		return err
	}
	if _, err := env.cluster.Kubectl(ctx, "apply", "-k", filepath.Join(moduleRoot, "deploy")); err != nil {
		return err
	}
	token, err := env.admin.CoreV1().ServiceAccounts(systemNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	env.token = token.Status.Token
	for i := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", i+1)}}
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: many}
		node.Status.Capacity = node.Status.Allocatable
		if _, err := env.admin.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// adminConfig has its certificates in memory: client-go follows those in files
// with goroutines that never end.
func adminConfig() (*rest.Config, error) {
	config := env.cluster.AdminConfig()
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	config.CAFile, config.CertFile, config.KeyFile = "", "", ""
	return config, nil
}

// accountConfig has the rights that deploy/ gives, and no more.
func accountConfig() *rest.Config {
	config := rest.AnonymousClientConfig(env.cluster.AdminConfig())
	config.CAData, config.CAFile = env.ca, ""
	config.BearerToken = env.token
	return config
}
