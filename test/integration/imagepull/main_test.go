// Package imagepull tests the pre-pull of a hub process with a real containerd: an answered request is
// carried out whatever happens to the hub, containerd, the registry and the cloud; no byte is fetched
// twice; and nothing is left behind. The tests use the hub's HTTP API, and look into containerd over CRI,
// like the kubelet, and with ctr. The hub has only the identity of a node.
//
// No kubelet runs. The DaemonSet controller creates the pods and the scheduler binds them; the tests do
// what edgehub-controller and the kubelet would do.
//
// The invariants are those of imagepull/README.md.
package imagepull

import (
	"context"
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

// productRoot is the path of the product's module.
const productRoot = "../../.."

// environment is shared by all tests.
type environment struct {
	cluster    *cluster.Cluster
	admin      kubernetes.Interface // without the hub
	controller kubernetes.Interface // the same, as edgehub-controller, which does not run
	fleet      *fleet.Fleet         // keeps Nodes Ready, and does not run their pods
	hubBin     string
	ctlBin     string // edgehubctl
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to pass it

// atOnce is how many tests run in parallel, unless -parallel is given: they mostly wait, for a slow
// registry or an interval.
const atOnce = 6

func TestMain(m *testing.M) {
	testmain.AtOnce(atOnce)
	os.Exit(testmain.Main(m, "imagepull", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	if env.ctlBin, err = hubproc.BuildOwnersTool(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	if env.cluster, err = s.StartCluster(ctx, cluster.Options{}); err != nil {
		return err
	}
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		return err
	}
	if env.controller, err = kubernetes.NewForConfig(cluster.AsController(env.cluster.AdminConfig())); err != nil {
		return err
	}
	env.fleet = fleet.New(env.admin, fleet.Options{PodSelector: "played-by=fleet", Log: os.Stderr})
	s.Play(ctx, env.fleet)
	return nil
}
