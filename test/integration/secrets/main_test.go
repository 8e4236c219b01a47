// Package secrets plants tokens, keys and passwords wherever a hub comes by some,
// has it use them and fail with them, with the cloud and without, and then looks for
// them in all that it has logged, answered and written. The hub is a process of its
// own, at its most talkative, and the apiserver is real.
//
// Credentials for registries are planted in test/integration/imagepull, where images
// are pulled; those in a kubeconfig that is wrong in package hub/kubeconfig.
package secrets

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/hubproc"
)

// environment is what all cases share.
type environment struct {
	cluster *cluster.Cluster
	admin   kubernetes.Interface // straight to the apiserver
	hubBin  string
}

func TestSecretsStayWhereTheyAre(t *testing.T) {
	env := new(environment)
	var err error
	if env.hubBin, err = hubproc.Build(t.Context(), "../../..", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if env.cluster, err = cluster.Start(t.Context(), cluster.Options{Dir: t.TempDir(), Log: t.Output()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	if env.admin, err = kubernetes.NewForConfig(env.cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*testing.T, *environment){
		"a certificate and a cache in clear": testClear,
		"a token and a sealed cache":         testSealed,
		"a proxy that wants a password":      testProxy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, env)
		})
	}
}
