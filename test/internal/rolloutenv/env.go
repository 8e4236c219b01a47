// Package rolloutenv is the environment in which rollouts are tested: a real control
// plane, a fleet of simulated nodes, and controllers in this process that have the rights
// of deploy/. A Guard checks every deletion of theirs against what is allowed.
//
// Nothing here is safe for concurrent use, unless it says so.
package rolloutenv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
)

// SystemNamespace is that of the controller in deploy/.
const SystemNamespace = "edgehub-system"

const account = "edgehub-controller" // as in deploy/

// Env is a running cluster with a fleet.
type Env struct {
	Cluster *cluster.Cluster
	Admin   *kubernetes.Clientset
	Fleet   *fleet.Fleet

	ca    []byte
	token string

	stopFleet context.CancelFunc
	ended     chan error // one result, of the fleet
}

// New applies deploy/ to a cluster that runs, and returns an environment without a fleet, which is the caller's to stop. root
// is the folder of the product's module.
func New(ctx context.Context, c *cluster.Cluster, root string) (*Env, error) {
	s := &Env{Cluster: c}
	config := c.AdminConfig()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	s.ca = config.CAData
	var err error
	if s.Admin, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if _, err := c.Kubectl(ctx, "apply", "-k", filepath.Join(root, "deploy")); err != nil {
		return nil, err
	}
	token, err := s.Admin.CoreV1().ServiceAccounts(SystemNamespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	s.token = token.Status.Token
	return s, nil
}

// RemoveDeployment removes the Deployment of deploy/: the pods of edgehub-controller would run on nodes that are played.
func (s *Env) RemoveDeployment(ctx context.Context) error {
	_, err := s.Cluster.Kubectl(ctx, "-n", SystemNamespace, "delete", "deployment", "--all")
	return err
}

// ApplyAdmission applies deploy/admission, and waits until controllers can create pods as dry runs only. A controller
// makes use of that if its Namespace is SystemNamespace.
func (s *Env) ApplyAdmission(ctx context.Context, root string) error {
	if _, err := s.Cluster.Kubectl(ctx, "apply", "-k", filepath.Join(root, "deploy", "admission")); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.AccountConfig())
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "probe-"}}
	pod.Spec.Containers = []corev1.Container{{Name: "none", Image: "none"}}
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		asker := &successor.Asker{Client: client, Namespace: SystemNamespace, Logger: slog.New(slog.DiscardHandler)}
		return asker.Ask(ctx, pod, pod).Result == successor.Admitted, nil
	})
}

// start builds what is missing, and returns an environment with nodes n1 to nN, each with
// a label name=nI.
func start(ctx context.Context, root string, nodes int, o fleet.Options) (*Env, error) {
	c, err := cluster.Start(ctx, cluster.Options{Log: o.Log})
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, c, root)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := s.furnish(ctx, nodes, o); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *Env) furnish(ctx context.Context, nodes int, o fleet.Options) error {
	if err := s.RemoveDeployment(ctx); err != nil {
		return err
	}
	s.Fleet = fleet.New(s.Admin, o)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopFleet, s.ended = stop, make(chan error, 1)
	go func() { s.ended <- s.Fleet.Run(running) }()
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		if err := s.Fleet.AddNode(ctx, name, map[string]string{"name": name}); err != nil {
			return err
		}
	}
	return nil
}

// stop takes everything down.
func (s *Env) stop() error {
	var errs []error
	if s.stopFleet != nil {
		s.stopFleet()
		errs = append(errs, <-s.ended)
	}
	return errors.Join(append(errs, s.Cluster.Stop())...)
}

// AccountConfig has the rights of deploy/, and no more.
func (s *Env) AccountConfig() *rest.Config {
	config := rest.AnonymousClientConfig(s.Cluster.AdminConfig())
	config.CAData, config.CAFile = s.ca, ""
	config.BearerToken = s.token
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	return config
}

// Kubeconfig writes a kubeconfig with the rights of deploy/, and returns its name.
func (s *Env) Kubeconfig(t testing.TB) string {
	t.Helper()
	const entry = "test"
	config := clientcmdapi.NewConfig()
	config.Clusters[entry] = &clientcmdapi.Cluster{Server: s.Cluster.ServerURL(), CertificateAuthority: s.Cluster.CAFile()}
	config.AuthInfos[entry] = &clientcmdapi.AuthInfo{Token: s.token}
	config.Contexts[entry] = &clientcmdapi.Context{Cluster: entry, AuthInfo: entry}
	config.CurrentContext = entry
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// Main is for TestMain: it runs the tests with an environment that it starts, hands to use,
// and stops. It returns the code to exit with.
func Main(m *testing.M, root string, nodes int, use func(*Env)) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Kubernetes may have to be built
	defer cancel()
	s, err := start(ctx, root, nodes, fleet.Options{Log: os.Stderr})
	if err == nil {
		use(s)
		code = m.Run()
		err = s.stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
