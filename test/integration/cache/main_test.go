// Package cache shows by its tests what must be true of the hub's cache: that what a
// node read while it was online is what it reads while the cloud is away, and nothing
// else. The hub is a process of its own, seen over HTTP only; before it stand a real
// apiserver and a link that fails on demand. What a real apiserver cannot be made to send,
// and what no real one is needed for, is tested in cache, in no time; what comes at random
// in test/fuzzcache.
//
// The design has invariants. A test that guards one says so: "invariant 7", here or in cache. Number
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
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

// patience is how long anything may take that has to happen at some time. It is long
// since the machine may be busy, and only spent when something is wrong.
const patience = 2 * time.Minute

// productRoot is the product's module, seen from this folder.
const productRoot = "../../.."

// staticToken is a valid bearer token without dots, of a user with no rights of its own.
const staticToken = "static-token-of-a-user"

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
	testmain.AtOnce(atOnce)
	os.Exit(testmain.Main(m, "cache", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	if env.audit.Log, err = audit.New(filepath.Join(s.Dir, "audit"), auditRules); err != nil {
		return err
	}
	staticTokens := filepath.Join(s.Dir, "static-tokens.csv")
	if err := os.WriteFile(staticTokens, []byte(staticToken+",static-user,static-uid\n"), 0o600); err != nil {
		return err
	}
	env.Cluster, err = s.StartCluster(ctx, cluster.Options{
		APIServerArgs: append(env.audit.Args(),
			"--etcd-compaction-interval=0", // it remembers every version
			"--token-auth-file="+staticTokens),
	})
	if err != nil {
		return err
	}
	if env.client, err = kubernetes.NewForConfig(env.AdminConfig()); err != nil {
		return err
	}
	if env.direct, err = newDirectClient(env.Cluster); err != nil {
		return err
	}
	s.Cleanup(func() error { env.direct.close(); return nil })
	return nil
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
