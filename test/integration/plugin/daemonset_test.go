package plugin

import (
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

const (
	strategyKey = "apps.openyurt.io/update-strategy"
	advanced    = "AdvancedRollingUpdate"
)

// fixture is a DaemonSet web in a namespace of its own.
type fixture struct {
	*rolloutenv.DaemonSet
	t *testing.T
}

// newDaemonSet makes one with AdvancedRollingUpdate and waits until it has an available pod on each node.
func newDaemonSet(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{env.deployed.Create(t, map[string]string{strategyKey: advanced}), t}
	poll.Eventually(t, "each node has an available pod", func() bool { return f.Get().Status.NumberAvailable == int32(len(nodeNames)) })
	return f
}

// change gives the pods another image and waits until Kubernetes has its revision.
func (f *fixture) change(image string) {
	f.t.Helper()
	f.SetImage(image)
	poll.Eventually(f.t, "Kubernetes has taken note of the new template", func() bool {
		ds := f.Get()
		return ds.Status.ObservedGeneration == ds.Generation
	})
}
