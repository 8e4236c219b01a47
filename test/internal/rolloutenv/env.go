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
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
)

// As in deploy/.
const (
	systemNamespace = "edgehub-system"
	account         = "edgehub-controller"
)

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

// start builds what is missing, and returns an environment with nodes n1 to nN, each with
// a label name=nI. root is the folder of the product's module.
func start(ctx context.Context, root string, nodes int, o fleet.Options) (*Env, error) {
	c, err := cluster.Start(ctx, cluster.Options{Log: o.Log})
	if err != nil {
		return nil, err
	}
	s := &Env{Cluster: c}
	if err := s.prepare(ctx, root, nodes, o); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *Env) prepare(ctx context.Context, root string, nodes int, o fleet.Options) error {
	config := s.Cluster.AdminConfig()
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	s.ca = config.CAData
	var err error
	if s.Admin, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if _, err := s.Cluster.Kubectl(ctx, "apply", "-k", filepath.Join(root, "deploy")); err != nil {
		return err
	}
	// The pods of edgehub-controller would run on the fleet, and be in the way.
	if _, err := s.Cluster.Kubectl(ctx, "-n", systemNamespace, "delete", "deployment", "--all"); err != nil {
		return err
	}
	token, err := s.Admin.CoreV1().ServiceAccounts(systemNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.token = token.Status.Token

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

// accountConfig has the rights of deploy/, and no more.
func (s *Env) accountConfig() *rest.Config {
	config := rest.AnonymousClientConfig(s.Cluster.AdminConfig())
	config.CAData, config.CAFile = s.ca, ""
	config.BearerToken = s.token
	config.QPS = -1
	return config
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
