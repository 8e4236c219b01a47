// Package ota tests the node's HTTP API against a real apiserver, with the identity that a node has there, beside the real
// controllers and edgehub's. The test's fleet plays kubelet, but not of pods with the label bare: such a pod stays, marked as
// being deleted, until the test ends it.
package ota

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/audit"
	"github.com/edgehub-io/edgehub/test/internal/fleet"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/testmain"
)

const (
	moduleRoot = "../../.."
	namespace  = "default"
	bare       = "bare"
)

// bareNodes have the label bare, and no hub.
var bareNodes = []string{"node1", "node2"} //nolint:gochecknoglobals // read only

// env is what all tests share. It is set once, before any of them.
var env struct { //nolint:gochecknoglobals // TestMain has no other way to hand it on
	*cluster.Cluster
	admin  kubernetes.Interface
	fleet  *fleet.Fleet
	audit  *audit.Log // the deletions of pods
	hubBin string
}

func TestMain(m *testing.M) { os.Exit(testmain.Main(m, "ota", prepare)) }

func prepare(ctx context.Context, s *testmain.Env) (err error) {
	if env.hubBin, err = hubproc.Build(ctx, moduleRoot, s.Dir); err != nil {
		return err
	}
	const rules = `- level: Metadata
  verbs: [delete]
  resources: [{resources: [pods]}]
- level: None
`
	if env.audit, err = audit.NewAnswered(filepath.Join(s.Dir, "audit"), rules); err != nil {
		return err
	}
	if env.Cluster, err = s.StartCluster(ctx, cluster.Options{APIServerArgs: env.audit.Args()}); err != nil {
		return err
	}
	config := env.AdminConfig()
	config.QPS = -1
	if env.admin, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	env.fleet = fleet.New(env.admin, fleet.Options{PodSelector: "!" + bare, Log: os.Stderr})
	s.Play(ctx, env.fleet)
	for _, name := range bareNodes {
		if err := env.fleet.AddNode(ctx, name, map[string]string{corev1.LabelHostname: name, bare: ""}); err != nil {
			return err
		}
	}
	return startController(ctx, s)
}

// startController has edgehub's controller mark pods until the tests are over.
func startController(ctx context.Context, s *testmain.Env) error {
	marks, err := controller.New(env.admin, controller.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("controller: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1) // one result
	go func() { ended <- marks.Run(ctx) }()
	s.Cleanup(func() error { stop(); return <-ended })
	return nil
}
