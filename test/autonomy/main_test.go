// Package autonomy takes real nodes away for longer than their pods tolerate: kubelets with containers behind
// hubs, a real controller manager and edgehub-controller. What controllers and taint eviction do in detail
// is in integration/autonomy, with nodes that are played.
//
// The apiserver gives pods tolerations of 10 s, in place of 300. It needs root.
package autonomy

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

// toleration is for how many seconds pods tolerate that their node is away, by default.
const toleration = "10"

var env struct {
	cluster *cluster.Cluster
	client  kubernetes.Interface // administrator, straight to the apiserver
}

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "autonomy", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) error {
	programs, err := hubproc.Programs("../..")
	if err != nil {
		return err
	}
	env.cluster, err = s.StartCluster(ctx, cluster.Options{
		Nodes: 3, HubBin: filepath.Join(programs, "edgehub"), ControllerBin: filepath.Join(programs, "edgehub-controller"), ControllerDeploy: "../../deploy",
		ControllerArgs:        []string{"--default-toleration-seconds=" + toleration},
		APIServerArgs:         []string{"--default-not-ready-toleration-seconds=" + toleration, "--default-unreachable-toleration-seconds=" + toleration},
		ControllerManagerArgs: []string{"--node-eviction-rate=100"}, // a node at a time, without waiting for the next
	})
	if err != nil {
		return err
	}
	env.client, err = kubernetes.NewForConfig(env.cluster.AdminConfig())
	return err
}
