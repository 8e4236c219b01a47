package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// newStatefulSet makes one with a pod db-0 on node, and returns its namespace.
func newStatefulSet(t *testing.T, node string) string {
	t.Helper()
	ns, err := env.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
	set.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:v1"}}
	if _, err := env.admin.AppsV1().StatefulSets(ns.Name).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = env.admin.AppsV1().StatefulSets(ns.Name).Delete(context.Background(), "db", metav1.DeleteOptions{}) // it may be gone
	})
	poll.Eventually(t, "its pod runs", func() bool {
		pod, err := env.admin.CoreV1().Pods(ns.Name).Get(t.Context(), "db-0", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
	return ns.Name
}

// seenNode is what scripts read of a node.
type seenNode struct {
	Ready                             bool
	Autonomy, OfflineSince, HeldUntil string
	HeldPods                          int
}

// The controller is the product's, and taint eviction that of a real kube-controller-manager.
func TestANodeThatIsAwayAndReleased(t *testing.T) {
	const node = "node3"
	ns := newStatefulSet(t, node)
	seen := func() seenNode {
		t.Helper()
		got := edgehub(t, "nodes", node, "-o", "json")
		got.expect(t, 0)
		var report struct{ Nodes []seenNode }
		if err := json.Unmarshal([]byte(got.out), &report); err != nil || len(report.Nodes) != 1 {
			t.Fatalf("decode %q: %v", got.out, err)
		}
		return report.Nodes[0]
	}
	if n := seen(); !n.Ready || n.Autonomy != "" || n.OfflineSince != "" || n.HeldPods != 0 {
		t.Errorf("got %+v", n)
	}
	kubectl(t, "annotate", "node", node, api.AutonomyAnnotation+"=0").expect(t, 0, "annotated")
	t.Cleanup(func() {
		for _, key := range []string{api.AutonomyAnnotation, api.ReleasedAnnotation} {
			_ = command(context.Background(), "annotate", "node", node, key+"-").Run() // it may be gone
		}
	})
	edgehub(t, "nodes").expect(t, 0, "NODE ", "\nnode3   forever    -                     0      -\n",
		"warning: node node3: the controller has not yet carried out its annotation", "warning: the controller seems not to run")
	runController(t)
	poll.Eventually(t, "the pod is held", func() bool { return seen().HeldPods == 1 })
	kubectl(t, "wait", "node/"+node, "--for=condition="+string(api.AutonomyCondition), "--timeout=60s").expect(t, 0, "condition met")
	if n := seen(); n.Autonomy != "forever" || n.HeldUntil != "" {
		t.Errorf("got %+v", n)
	}
	edgehub(t, "release", node).expect(t, 1, "error: node node3 is Ready", "kubectl drain node3")

	if err := env.fleet.CutOff(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.fleet.Connect(context.Background(), node); err != nil {
			t.Error(err)
		}
	})
	poll.Eventually(t, "Kubernetes has tainted the node", func() bool { return seen().HeldUntil == "forever" })
	if n := seen(); n.Ready || n.OfflineSince == "" || n.HeldPods != 1 {
		t.Errorf("got %+v", n)
	}
	released := edgehub(t, "release", node)
	released.expect(t, 0, "node/node3 released: its pods are evicted now, 1 of them held until now\n",
		fmt.Sprintf("replace no pod that is Terminating: %s/db-0.", ns), "kubectl delete node node3", "warning: the controller seems not to run")
	edgehub(t, "release", node).expect(t, 0, "node/node3 was released already, at 20")
	if n := seen(); n.Autonomy != "released" {
		t.Errorf("got %+v", n)
	}
	poll.Eventually(t, "Kubernetes evicts the pod", func() bool {
		pod, err := env.admin.CoreV1().Pods(ns).Get(t.Context(), "db-0", metav1.GetOptions{})
		return err == nil && pod.DeletionTimestamp != nil
	})
	if n := seen(); n.HeldPods != 0 {
		t.Errorf("a pod that is evicted counts as held: %+v", n)
	}
	if err := env.fleet.Connect(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, "the node is as before, with another pod", func() bool {
		n := seen()
		return n.Ready && n.Autonomy == "forever" && n.OfflineSince == "" && n.HeldPods == 1
	})
	edgehub(t, "release", node, "--as=nobody").expect(t, 1, "forbidden", `"nobody"`)
	edgehub(t, "nodes", "nobody").expect(t, 1, `error: nodes "nobody" not found`)
}
