package plugin

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// replace deletes a node's pod, and waits until its successor has been seen to by
// the node.
func (f *fixture) replace(node string) {
	f.t.Helper()
	old := f.Pods()[node]
	if err := env.admin.CoreV1().Pods(f.Namespace).Delete(f.t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
	poll.Eventually(f.t, "node "+node+" runs another pod", func() bool {
		pod := f.Pods()[node]
		return pod != nil && pod.UID != old.UID && len(pod.Status.ContainerStatuses) > 0
	})
}
