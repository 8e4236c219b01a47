// Package flood shows that nobody on a node takes the hub away from it: neither a pod without
// a token, nor root of a pod on the host's network, nor a user who may log in, nor a service
// account, however much they ask of it.
//
// Cluster, node and pod are real. The hub has the memory that its unit allows it. While a
// flood lasts, the node reads and writes as kubelet does, and another namespace's service account
// and the owner read, too. Nobody is refused, the hub is not killed and does not believe that the cloud is lost. How long
// the requests took, and how much memory the hub had, is logged: it depends on the machine.
//
// FLOOD=10m in the environment makes each flood last for that long; without it, as long as it
// takes to be at its height. The tests need root.
package flood

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
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	// podAddress is where pods of the first node reach the hub: the address of its bridge.
	podAddress = "198.18.1.1"
	// memoryLimit is MemoryMax of the hub's unit, in bytes.
	memoryLimit = 512 << 20
)

type environment struct {
	*cluster.Cluster
	client kubernetes.Interface // administrator, straight to the apiserver
	node   *cluster.Node
	length time.Duration // of each flood
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) {
	if os.Getenv(attackVariable) != "" {
		attackMain()
		return
	}
	os.Exit(testmain.Main(m, "flood", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	env.length = 20 * time.Second
	if text := os.Getenv("FLOOD"); text != "" {
		if env.length, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("FLOOD=%s: it must be a time, such as 10m", text)
		}
	}
	programs, err := hubproc.Programs("../..")
	if err != nil {
		return err
	}
	env.Cluster, err = s.StartCluster(ctx, cluster.Options{
		Nodes: 1, HubBin: filepath.Join(programs, "edgehub"),
		// As `edgehub install` does, but for the plain port, at which each program that is new
		// has the hub look whose it is.
		KubeletOnTLS: func(string) bool { return true },
		HubArgs: func(string) []string {
			return []string{"--dummy-if-ip=" + podAddress, "--proxy-port=10261", "--caller-check=required"}
		},
	})
	if err != nil {
		return err
	}
	env.node = env.Node("node1")
	env.client, err = kubernetes.NewForConfig(env.AdminConfig())
	return err
}
