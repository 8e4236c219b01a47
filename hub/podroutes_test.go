package hub

import (
	"context"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/imagepull/engine"
	"github.com/edgehub-io/edgehub/ota/coreclient"
	"github.com/edgehub-io/edgehub/ota/nodepods"
)

// running are the environments of all containers.
type running []engine.Environment

func (r running) Environments(context.Context, ...string) ([]engine.Environment, error) {
	return r, nil
}

// A container may run before the hub knows its pod: then it is decided again once it does.
func TestWhatIsDecidedAnewWhenPodsAreKnown(t *testing.T) {
	cloud := httptest.NewServer(&podCloud{})
	defer cloud.Close()
	client, err := coreclient.New(&rest.Config{Host: cloud.URL})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := nodepods.New(client, "n1")
	if err != nil {
		t.Fatal(err)
	}
	suspects := func(containers running, want ...string) {
		t.Helper()
		routes := &podRoutes{config: &config.Config{PodAddresses: podAddress}, pods: pods, runtime: containers}
		if got, err := routes.suspects(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	old := running{{ID: "c1", PodUID: "u", Values: map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_PORT": "tcp://10.96.0.1:443"}}}
	suspects(old, "c1")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { pods.Run(ctx, func([]*corev1.Pod) {}) })
	until(t, "the pods are known", pods.Synced)
	suspects(old, "c1", "u")
	suspects(nil)
}
