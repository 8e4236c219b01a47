// Package attack shows by random sequences of hostile requests that no caller of a hub
// reads what was served to another user, and that none changes, or takes away, what
// another user reads: online, while the cloud is away, and after a restart of the hub.
//
// Honest users read Secrets that hold a marker of their own. Attackers send credentials
// that are missing, forged, foreign, expired, for another audience, of a deleted account,
// doubled, or sent twice in different ways, in all forms of a header, on both proxy ports.
// For each the test knows whom an apiserver takes the caller for, so that the markers
// which an answer may hold are known, too.
//
// The hub and the apiserver are real. The hub lends the node's identity to no user that
// this test runs as: callers without credentials stand for any user of the machine.
package attack

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

// productRoot is the product's module, seen from this folder.
const productRoot = "../.."

// patience is how long anything may take that has to happen at some time. It is long
// since the machine may be busy, and only spent when something is wrong.
const patience = 2 * time.Minute

// environment is what all tests share.
type environment struct {
	*cluster.Cluster
	admin  kubernetes.Interface
	hubBin string
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "attack", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	if env.Cluster, err = s.StartCluster(ctx, cluster.Options{}); err != nil {
		return err
	}
	env.admin, err = kubernetes.NewForConfig(env.AdminConfig())
	return err
}
