package autonomy

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// The annotations of many nodes are changed at once, and edgehub-controller is killed midway: each pod and each node is
// written once, and none is left out. AUTONOMY_NODES=1000 is the long form.
func TestManyNodesAtOnce(t *testing.T) {
	const podsPerNode = 10
	nodes := 20
	if n, err := strconv.Atoi(os.Getenv("AUTONOMY_NODES")); err == nil {
		nodes = n
	}
	pods := nodes * podsPerNode
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(50)
	for i := range nodes {
		g.Go(func() error { return furnish(ctx, manyName(i), podsPerNode) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	mark, err := env.record.Mark()
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	g, ctx = errgroup.WithContext(t.Context())
	g.SetLimit(50)
	qps := strconv.Itoa(pods / 4) // what few pods need seconds for
	first := startProcess(t, "--kube-api-qps="+qps, "--kube-api-burst="+qps)
	for i := range nodes {
		g.Go(func() error { return annotate(ctx, manyName(i), api.AutonomyAnnotation, "24h") })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	annotated := time.Since(began)
	poll.Eventually(t, "half of the pods are done", func() bool { return first.patched() >= pods/2 })
	first.kill()
	killed := time.Since(began)
	done := 0
	for _, p := range manyPods(t) {
		if tolerates(&p) == "86400 86400" {
			done++
		}
	}
	startProcess(t)
	poll.Eventually(t, "all nodes are done", func() bool { return applied(t) == nodes })
	t.Logf("%d pods on %d nodes: annotated after %v, controller killed after %v and %d pods, all done after %v",
		pods, nodes, annotated.Round(time.Millisecond), killed.Round(time.Millisecond), done, time.Since(began).Round(time.Millisecond))

	all := manyPods(t)
	for i := range all {
		// The generation of a pod counts changes of its spec, from 1 on.
		if p := &all[i]; tolerates(p) != "86400 86400" || p.Generation != 2 {
			t.Errorf("%s tolerates %s, and was changed %d times", p.Name, tolerates(p), p.Generation-1)
		}
	}
	// The only other writes are conditions, which have no generation. A request that the kill cut off may have been
	// carried out without this answer, but none is carried out again.
	answers := map[string]int{}
	requests, err := env.record.Since(mark)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range requests {
		if strings.HasPrefix(q.ObjectRef.Name, "many-") { // others are of earlier tests
			answers[fmt.Sprint(q.ObjectRef.Resource, " ", q.ResponseStatus.Code)]++
		}
	}
	t.Logf("answers: %v", answers)
	if len(all) != pods || answers["nodes 200"] > nodes {
		t.Errorf("%d pods, and %d conditions were written, want %d and at most %d", len(all), answers["nodes 200"], pods, nodes)
	}
}

func manyName(i int) string { return fmt.Sprintf("many-%d", i) }

// furnish makes a node that nobody plays, with pods.
func furnish(ctx context.Context, node string, pods int) error {
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{"many": ""}}}
	object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	if _, err := env.admin.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return err
	}
	for i := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", node, i), Labels: map[string]string{"many": ""}}}
		pod.Spec.NodeName, pod.Spec.Containers = node, []corev1.Container{{Name: "app", Image: "app"}}
		pod.Spec.AutomountServiceAccountToken = new(false)
		if _, err := env.admin.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func manyPods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := env.admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "many"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// applied returns how many of the nodes have the condition.
func applied(t *testing.T) (n int) {
	t.Helper()
	list, err := env.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "many", ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if c := autonomy.ConditionOf(&list.Items[i]); c != nil && c.Status == corev1.ConditionTrue {
			n++
		}
	}
	return n
}
