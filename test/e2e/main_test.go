// Package e2e runs real kubelets with real containers behind real hubs, and does
// with them what a cluster's admin and a node's owner do.
//
// The tests share one cluster, whose nodes have a containerd of another version each,
// and each test has a namespace of its own. They run one
// after the other; those that take the cloud away from a node run last, beside each
// other, on a node each. They need root.
//
// OUTAGE=3m in the environment makes the cloud stay away for that long; without it, the
// shortest time in which everything can be tried.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

// binaries is the folder with the product's programs.
var binaries string

// containerds are what the nodes run; CONTAINERD=installed in the environment has all run the one
// that is installed, and none is built.
var containerds = map[string]cluster.ContainerdVersion{
	"node1": cluster.ContainerdInstalled, "node2": cluster.Containerd17, "node3": cluster.Containerd2,
}

// onTLS is the node whose kubelet has a client certificate of its own, and no other way to
// the hub than the TLS port.
const onTLS = "node2"

// env is what all tests share. It is set once, before any of them.
type environment struct {
	*cluster.Cluster
	client kubernetes.Interface // administrator, straight to the apiserver
	outage time.Duration        // for how long the cloud is away at least
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	outage, err := outageLength()
	if err != nil {
		return 1, err
	}
	if binaries, err = hubproc.Programs("../.."); err != nil {
		return 1, err
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes: 3, HubBin: filepath.Join(binaries, "edgehub"), ControllerBin: filepath.Join(binaries, "edgehub-controller"), ControllerDeploy: "../../deploy", Log: os.Stderr,
		KubeletOnTLS: func(node string) bool { return node == onTLS },
		Containerd:   containerdOf,
	})
	if err != nil {
		return 1, err
	}
	defer func() {
		if stopErr := c.Stop(); stopErr != nil {
			err = stopErr
		}
		if code == 0 && err == nil {
			_ = os.RemoveAll(c.Dir()) // the logs are of no use then
			return
		}
		fmt.Fprintln(os.Stderr, "the logs of all components are in", c.LogDir())
	}()
	client, err := kubernetes.NewForConfig(c.AdminConfig())
	if err != nil {
		return 1, err
	}
	env = environment{c, client, outage}
	return m.Run(), nil
}

func containerdOf(node string) cluster.ContainerdVersion {
	if os.Getenv("CONTAINERD") == "installed" {
		return cluster.ContainerdInstalled
	}
	return containerds[node]
}

func outageLength() (time.Duration, error) {
	text := os.Getenv("OUTAGE")
	if text == "" {
		return 25 * time.Second, nil
	}
	length, err := time.ParseDuration(text)
	if err != nil || length < 0 {
		return 0, fmt.Errorf("OUTAGE=%s: it must be a time, such as 3m", text)
	}
	return length, nil
}
