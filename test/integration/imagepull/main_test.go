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
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/edge"
	"github.com/edgehub-io/edgehub/test/fleet"
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
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		if err := parallel.Value.Set(strconv.Itoa(atOnce)); err != nil {
			panic(err) // it is a number
		}
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "imagepull:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Kubernetes may have to be built
	defer cancel()
	dir, err := os.MkdirTemp("", "edgehub-imagepull-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if env.hubBin, err = edge.Build(ctx, productRoot, dir); err != nil {
		return 1, err
	}
	if env.cluster, err = cluster.Start(ctx, cluster.Options{Log: os.Stderr}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stopCluster(code == 0)) }()
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		return 1, err
	}
	env.fleet = fleet.New(env.admin, fleet.Options{PodSelector: "played-by=fleet", Log: os.Stderr})
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1) // one result
	go func() { ended <- env.fleet.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	return m.Run(), nil
}

func stopCluster(passed bool) error {
	if err := env.cluster.Stop(); err != nil {
		return err
	}
	if passed {
		return os.RemoveAll(env.cluster.Dir()) // the logs are of no use then
	}
	fmt.Fprintln(os.Stderr, "the logs of the control plane are in", env.cluster.LogDir())
	return nil
}
