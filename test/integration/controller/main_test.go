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
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// What deploy/ says.
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

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Kubernetes may have to be built
	defer cancel()
	dir, err := os.MkdirTemp("", "edgehub-controller-test-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	env.binary = filepath.Join(dir, "edgehub-controller")
	if err := build(ctx, env.binary); err != nil {
		return 1, err
	}
	env.cluster, err = cluster.Start(ctx, cluster.Options{Log: os.Stderr})
	if err != nil {
		return 1, err
	}
	if err := prepare(ctx); err != nil {
		return 1, errors.Join(err, env.cluster.Stop())
	}
	code = m.Run()
	return code, env.cluster.Stop()
}

func build(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags=grpcnotrace", "-o", binary, "./cmd/edgehub-controller")
	cmd.Dir = moduleRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build edgehub-controller: %w: %s", err, out)
	}
	return nil
}

// prepare applies deploy/, gets a token for its ServiceAccount, and makes nodes.
func prepare(ctx context.Context) error {
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
