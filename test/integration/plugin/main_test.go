// Package plugin tests kubectl edgehub as its users meet it: kubectl finds the
// program in PATH and runs it against a real apiserver. Nodes and their pods are
// played by package fleet, and the controller runs in the tests that start it.
package plugin

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

// moduleRoot is the product's, seen from this folder.
const moduleRoot = "../../.."

// nodeNames are the nodes of the cluster.
var nodeNames = []string{"node1", "node2", "node3", "node4"}

// env is what all tests share.
var env struct {
	cluster  *cluster.Cluster
	deployed *rolloutenv.Env // without a controller that runs
	admin    *kubernetes.Clientset
	fleet    *fleet.Fleet
	// kubernetes is the binary with kubectl in it, pluginDir has kubectl-edgehub.
	kubernetes, pluginDir string
}

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "plugin", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.kubernetes, err = cluster.BuildKubernetes(ctx, os.Stderr); err != nil {
		return err
	}
	env.pluginDir = s.Dir
	if _, err := s.Build(ctx, moduleRoot, "kubectl-edgehub", "-race"); err != nil {
		return err
	}
	if err := os.Symlink("kubectl-edgehub", filepath.Join(env.pluginDir, "kubectl_complete-edgehub")); err != nil {
		return err
	}
	if env.cluster, err = s.StartCluster(ctx, cluster.Options{}); err != nil {
		return err
	}
	if env.deployed, err = rolloutenv.New(ctx, env.cluster, moduleRoot); err != nil {
		return err
	}
	if err := env.deployed.RemoveDeployment(ctx); err != nil {
		return err
	}
	env.admin = env.deployed.Admin
	env.fleet = fleet.New(env.admin, fleet.Options{Log: os.Stderr})
	s.Play(ctx, env.fleet)
	for _, name := range nodeNames {
		if err := env.fleet.AddNode(ctx, name, map[string]string{"kubernetes.io/hostname": name}); err != nil {
			return err
		}
	}
	return nil
}
