// Package callers shows who gets the node's identity on the hub's plain port, with a
// real hub before a real apiserver. Callers are processes of their own: of other
// users, in control groups named like pods', in other networks.
//
// Changing user, group and network takes root; without it, the tests say that they
// were not run.
package callers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/edge"
)

const (
	patience    = 30 * time.Second
	productRoot = "../../.."
)

// environment is what all tests share.
type environment struct {
	*cluster.Cluster
	hubBin string
	dir    string
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) {
	if os.Getenv(callerVariable) != "" {
		callerMain()
		return
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "callers:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Kubernetes may have to be built
	defer cancel()
	if env.dir, err = os.MkdirTemp("", "edgehub-callers-test-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(env.dir)
	if env.hubBin, err = edge.Build(ctx, productRoot, env.dir); err != nil {
		return 1, err
	}
	if env.Cluster, err = cluster.Start(ctx, cluster.Options{Log: os.Stderr}); err != nil {
		return 1, err
	}
	defer func() {
		err = errors.Join(err, env.Stop())
		if code == 0 && err == nil {
			err = os.RemoveAll(env.Dir()) // the logs are of no use then
		}
	}()
	return m.Run(), nil
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: it starts processes as other users, in other control groups and networks, which needs root")
	}
}
