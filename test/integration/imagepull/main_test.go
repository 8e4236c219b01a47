// Package imagepull shows by its tests what must be true of the hub's pre-pull: that a
// request which was answered is carried out, whatever becomes of the hub, of containerd,
// of the registry and of the cloud meanwhile, that no byte is fetched twice for it, and
// that nothing is left behind. The hub is a process of its own, seen over HTTP only, a
// node's identity is all it has, and a real containerd pulls. What containerd has is
// asked of CRI, as kubelet does, and of ctr.
//
// No kubelet runs. The DaemonSet controller makes the pods and the scheduler binds them;
// a test plays edgehub-controller, which marks pods, and the kubelet, which runs them.
//
// The invariants that tests name are those of imagepull/README.md.
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

// productRoot is the product's module, seen from this folder.
const productRoot = "../../.."

// environment is what all tests share.
type environment struct {
	cluster *cluster.Cluster
	admin   kubernetes.Interface // straight to the apiserver
	fleet   *fleet.Fleet         // keeps Nodes Ready, and leaves their pods alone
	hubBin  string
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

// atOnce is how many tests run beside each other, unless -parallel says more: most of
// the time they wait, for a registry that is slow or for an interval.
const atOnce = 6

func TestMain(m *testing.M) {
	testmain.AtOnce(atOnce)
	os.Exit(testmain.Main(m, "imagepull", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	if env.cluster, err = s.StartCluster(ctx, cluster.Options{}); err != nil {
		return err
	}
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		return err
	}
	env.fleet = fleet.New(env.admin, fleet.Options{PodSelector: "played-by=fleet", Log: os.Stderr})
	s.Play(ctx, env.fleet)
	return nil
}
