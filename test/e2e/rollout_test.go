package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// rollingDaemonSet is upgraded by the controller, one node at a time. Without
// minReadySeconds a container that crashes counts as available from its start to
// its end, as it does for Kubernetes' own rolling update.
func rollingDaemonSet(version string) *appsv1.DaemonSet {
	ds := otaDaemonSet("app", version)
	ds.Annotations = map[string]string{
		"apps.openyurt.io/update-strategy": "AdvancedRollingUpdate",
		"apps.openyurt.io/max-unavailable": "1",
	}
	ds.Spec.MinReadySeconds = 5
	return ds
}

// cutOff takes the cloud away from nodes, and returns when the cloud has noticed.
func cutOff(t *testing.T, nodes ...*cluster.Node) {
	t.Helper()
	for _, node := range nodes {
		t.Cleanup(func() { // for the tests to come
			if err := node.Link().Up(); err != nil {
				t.Error(err)
			}
			awaitNode(t, node, true)
		})
		if err := node.Link().Refuse(); err != nil {
			t.Fatal(err)
		}
		node.Link().Reset()
	}
	for _, node := range nodes {
		awaitNode(t, node, false)
	}
}

func awaitNode(t *testing.T, node *cluster.Node, ready bool) {
	t.Helper()
	// A test's own context has ended when its cleanup runs.
	ctx := context.WithoutCancel(t.Context())
	eventuallyWithin(ctx, t, fmt.Sprintf("%s has Ready %v", node.Name(), ready), func(ctx context.Context) string {
		object, err := env.client.CoreV1().Nodes().Get(ctx, node.Name(), metav1.GetOptions{})
		if err == nil && nodeReady(object) != ready {
			err = errors.New("it has not")
		}
		return words(err)
	})
}

// TestNodesThatAreAwayDoNotBlockARollout cuts two of three nodes off, changes the
// template, sees the third upgraded, gives the two their link back, and sees them
// follow without anyone's help.
func TestNodesThatAreAwayDoNotBlockARollout(t *testing.T) {
	ns := namespace(t, "rollout")
	createDaemonSet(t, ns, rollingDaemonSet("v1"))
	node1, node2, node3 := env.Node("node1"), env.Node("node2"), env.Node("node3")
	old := make(map[string]*corev1.Pod)
	for _, node := range env.Nodes() {
		old[node.Name()] = readyPodOn(t, ns, node.Name(), "")
		answers(t, old[node.Name()], "v1")
	}
	cutOff(t, node2, node3)

	setVersion(t, ns, "app", "v2")
	answers(t, readyPodOn(t, ns, node1.Name(), old[node1.Name()].UID), "v2")
	for _, node := range []*cluster.Node{node2, node3} {
		pod, err := env.client.CoreV1().Pods(ns).Get(t.Context(), old[node.Name()].Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.UID != old[node.Name()].UID || pod.DeletionTimestamp != nil {
			t.Errorf("the pod on %s, which is away, was touched", node.Name())
		}
		answers(t, old[node.Name()], "v1")
	}
	eventually(t, "kubectl describe says whom it waits for", func(ctx context.Context) string {
		out, err := env.Kubectl(ctx, "-n", ns, "describe", "ds", "app")
		if err != nil || strings.Contains(out, "RolloutWaiting") && strings.Contains(out, "2 waiting until their node is Ready") {
			return words(err)
		}
		return out
	})

	for _, node := range []*cluster.Node{node2, node3} {
		if err := node.Link().Up(); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range []*cluster.Node{node2, node3} {
		answers(t, readyPodOn(t, ns, node.Name(), old[node.Name()].UID), "v2")
	}
	complete(t, ns)
}

// complete waits until an admin's script would go on.
func complete(t *testing.T, ns string) {
	t.Helper()
	if out, err := env.Kubectl(t.Context(), "-n", ns, "wait", "--for=condition=RolloutComplete", "--timeout="+patience.String(), "ds/app"); err != nil {
		t.Error(out, err)
	}
}
