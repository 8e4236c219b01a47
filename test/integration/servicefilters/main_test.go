// Package servicefilters shows what kube-proxy and CoreDNS read of Services with annotations:
// client-go informers with their service accounts, before a real hub and a real apiserver. The
// hub has a node's rights and no others.
package servicefilters

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

const (
	patience    = 2 * time.Minute
	productRoot = "../../.."
)

// environment is what all tests share.
type environment struct {
	*cluster.Cluster
	admin  kubernetes.Interface // straight to the apiserver
	hubBin string
}

var env environment //nolint:gochecknoglobals // TestMain has no other way to hand it on

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "servicefilters", prepare)) }

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
