// Package callers shows who gets the node's identity on the hub's plain port, with a
// real hub before a real apiserver. Callers are processes of their own: of other
// users, in control groups named like pods', in other networks.
//
// Changing user, group and network takes root; without it, the tests report that they
// were not run.
package callers

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	patience    = 2 * time.Minute
	productRoot = "../../.."
)

// environment is what all tests share.
type environment struct {
	*cluster.Cluster
	hubBin string
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) {
	if os.Getenv(callerVariable) != "" {
		callerMain()
		return
	}
	os.Exit(testmain.Main(m, "callers", prepare))
}

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, productRoot, s.Dir); err != nil {
		return err
	}
	env.Cluster, err = s.StartCluster(ctx, cluster.Options{})
	return err
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: it starts processes as other users, in other control groups and networks, which needs root")
	}
}
