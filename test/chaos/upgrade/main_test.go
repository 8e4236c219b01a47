// Package upgrade_test is a randomized test of upgrades that wait for the cloud: each of a node's pods
// is upgraded while the cloud is away, some in place and at once, the cloud changes its mind about some, and hub, kubelet, containerd,
// edgehub-controller or the whole node are killed while the requests come in or the cloud comes back.
//
// Whatever is killed, each upgrade that still applies is carried out once, and none that does not.
//
// UPGRADE_ROUNDS sets how many rounds are played, FIRST_SEED with which to begin, and PODS how many
// pods each has. It needs root.
package upgrade_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/chaos/seeds"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	defaultRounds = 3
	nodes         = 4 // so many rounds are played at once, with -parallel
)

// env is what the rounds share.
var env struct { //nolint:gochecknoglobals // TestMain has no other way to hand it on
	*cluster.Cluster
	client kubernetes.Interface // administrator, straight to the apiserver
	free   chan *cluster.Node   // those that no round plays with
}

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "upgrade", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) error {
	bin, err := hubproc.Programs("../../..")
	if err != nil {
		return err
	}
	env.Cluster, err = s.StartCluster(ctx, cluster.Options{
		Nodes: nodes, HubBin: filepath.Join(bin, "edgehub"), ControllerBin: filepath.Join(bin, "edgehub-controller"), ControllerDeploy: "../../../deploy",
	})
	if err != nil {
		return err
	}
	env.free = make(chan *cluster.Node, nodes)
	for _, n := range env.Nodes() {
		env.free <- n
	}
	env.client, err = kubernetes.NewForConfig(env.AdminConfig())
	return err
}

func TestWhateverIsKilledEachUpgradeThatAppliesIsCarriedOutOnce(t *testing.T) {
	cluster.NeedRoot(t)
	seeds.Each(t, "UPGRADE_ROUNDS", defaultRounds, func(t *testing.T, seed int) {
		t.Parallel()
		node := <-env.free
		t.Cleanup(func() { env.free <- node }) // after those of the round
		newRound(t, node, seed).play()
	})
}
