// Package cache shows by its tests what must be true of the hub's cache: that what a
// node read while it was online is what it reads while the cloud is away, and nothing
// else. The hub is a process of its own, seen over HTTP only; before it stand a real
// apiserver and a link that fails on demand. A scripted apiserver takes the real one's
// place only where that cannot be made to fail as the test needs it.
//
// The design has 24 invariants. A test that guards one says so: "invariant 7". Number
// 22, kubelets restarted and machines rebooted, needs real nodes: see test/e2e.
//
// What a list has to be is not written down here: the apiserver is asked for the list
// at the version that the hub's answer carries (resourceVersionMatch=Exact), and the
// bytes have to be the same. It forgets no version, since it never compacts.
//
// Tests that break the apiserver run one after the other. The others, which break
// only the link of their own hub, run beside each other.
package cache

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/audit"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/edge"
)

// patience is how long anything may take that has to happen at some time. It is long
// since the machine may be busy, and only spent when something is wrong.
const patience = 30 * time.Second

// productRoot is the product's module, seen from this folder.
const productRoot = "../../.."

// environment is what all tests share.
type environment struct {
	*cluster.Cluster
	client kubernetes.Interface // the administrator's, straight to the apiserver
	direct *client              // the same, request by request
	audit  auditLog
	hubBin string
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

// atOnce is how many tests run beside each other, unless -parallel says more: most of
// the time they wait, for a disk, a link or an interval.
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
		fmt.Fprintln(os.Stderr, "cache:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Kubernetes may have to be built
	defer cancel()
	dir, err := os.MkdirTemp("", "edgehub-cache-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if env.hubBin, err = edge.Build(ctx, productRoot, dir); err != nil {
		return 1, err
	}
	if env.audit.Log, err = audit.New(filepath.Join(dir, "audit"), auditRules); err != nil {
		return 1, err
	}
	c, err := startCluster(ctx, env.audit.Log)
	if err != nil {
		return 1, err
	}
	env.Cluster = c
	defer func() { err = errors.Join(err, stopCluster(c, code == 0)) }()
	if env.client, err = kubernetes.NewForConfig(c.AdminConfig()); err != nil {
		return 1, err
	}
	if env.direct, err = newDirectClient(c); err != nil {
		return 1, err
	}
	defer env.direct.close()
	return m.Run(), nil
}

// startCluster starts a control plane that remembers every version.
func startCluster(ctx context.Context, a *audit.Log) (*cluster.Cluster, error) {
	return cluster.Start(ctx, cluster.Options{
		Log:           os.Stderr,
		APIServerArgs: append(a.Args(), "--etcd-compaction-interval=0"),
	})
}

// restartAPIServer starts the apiserver again, whether it runs or not. The controller
// manager comes back when it likes: no test waits for what it does.
func (e environment) restartAPIServer(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // a test's own has ended in its cleanup
	defer cancel()
	if err := e.APIServer().Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

func stopCluster(c *cluster.Cluster, passed bool) error {
	if err := c.Stop(); err != nil {
		return err
	}
	if passed {
		return os.RemoveAll(c.Dir()) // the logs are of no use then
	}
	fmt.Fprintln(os.Stderr, "the logs of the control plane are in", c.LogDir())
	return nil
}
