// Package secrets plants tokens, keys and passwords wherever a hub comes by some,
// has it use them and fail with them, with the cloud and without, and then looks for
// them in all that it has logged, answered and written. The hub is a process of its
// own, at its most talkative, and the apiserver is real.
//
// Credentials for registries are planted in test/integration/imagepull, where images
// are pulled.
package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/edge"
)

// productRoot is the product's module, seen from this folder.
const productRoot = "../../.."

// env is what all tests share.
var env struct { //nolint:gochecknoglobals // TestMain has no other way to hand it on
	cluster *cluster.Cluster
	admin   kubernetes.Interface // straight to the apiserver
	hubBin  string
}

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "secrets:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // Kubernetes may have to be built
	defer cancel()
	dir, err := os.MkdirTemp("", "edgehub-secrets-test-")
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
	defer func() { err = errors.Join(err, env.cluster.Stop(), os.RemoveAll(env.cluster.Dir())) }()
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
