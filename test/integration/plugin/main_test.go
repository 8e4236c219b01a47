// Package plugin tests kubectl edgehub as its users meet it: kubectl finds the
// program in PATH and runs it against a real apiserver. Nodes and their pods are
// played by package fleet, and no controller runs but in the test that starts one:
// a test deletes pods in its place.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/fleet"
)

const (
	// moduleRoot is the product's, seen from this folder.
	moduleRoot = "../../.."
	// patience is how long something may take; it is only spent when something is
	// wrong.
	patience = time.Minute
)

// nodeNames are the nodes of the cluster.
var nodeNames = []string{"node1", "node2", "node3", "node4"}

// env is what all tests share.
var env struct {
	cluster *cluster.Cluster
	admin   *kubernetes.Clientset
	fleet   *fleet.Fleet
	// kubernetes is the binary with kubectl in it, pluginDir has kubectl-edgehub.
	kubernetes, pluginDir string
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
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute) // Kubernetes may have to be built
	defer cancel()
	if err := build(ctx); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(env.pluginDir)) }()
	if env.cluster, err = cluster.Start(ctx, cluster.Options{Log: os.Stderr}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, env.cluster.Stop(), os.RemoveAll(env.cluster.Dir())) }()
	config := env.cluster.AdminConfig()
	config.QPS = -1
	if env.admin, err = kubernetes.NewForConfig(config); err != nil {
		return 1, err
	}
	env.fleet = fleet.New(env.admin, fleet.Options{Log: os.Stderr})
	playing, stop := context.WithCancel(ctx)
	ended := make(chan error, 1) // one result
	go func() { ended <- env.fleet.Run(playing) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	for _, name := range nodeNames {
		if err := env.fleet.AddNode(ctx, name, map[string]string{"kubernetes.io/hostname": name}); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// build makes the plugin, and looks for the kubectl that the cluster is built with.
func build(ctx context.Context) (err error) {
	if env.kubernetes, err = cluster.BuildKubernetes(ctx, os.Stderr); err != nil {
		return err
	}
	if env.pluginDir, err = os.MkdirTemp("", "edgehub-plugin-test-"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-race", "-tags=grpcnotrace", "-o", filepath.Join(env.pluginDir, "kubectl-edgehub"), "./cmd/kubectl-edgehub")
	cmd.Dir = moduleRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build kubectl-edgehub: %w: %s", err, out)
	}
	return nil
}
