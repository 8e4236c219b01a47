package autonomy

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	kept     = "node1"
	released = "node2"
	spare    = "node3" // where replacements start
)

// Two autonomous nodes are away for longer than pods tolerate by themselves. One comes back, and all of its containers are
// those that ran before; a Service has its endpoint again. The other one is given up before it comes back: its pods are
// evicted at once, and its kubelet ends them when it is back.
func TestAnOutageLeavesNoTrace(t *testing.T) {
	var stay, leave []*app
	for _, kind := range []string{deployment, statefulSet} {
		stay, leave = append(stay, start(t, kind, kept, nil)), append(leave, start(t, kind, released, nil))
	}
	stay[0].expose(t)
	// A pod with tolerations of its own is treated as Kubernetes treats it.
	own := start(t, deployment, kept, new(int64(11)))
	for _, node := range []string{kept, released} {
		annotate(t, node, api.AutonomyAnnotation, "1h")
		awaitCondition(t, node, corev1.ConditionTrue, autonomy.ReasonApplied)
	}

	began := time.Now()
	for _, node := range []string{kept, released} {
		link := env.cluster.Node(node).Link()
		t.Cleanup(func() { _ = link.Up() }) // it is, unless the test has failed
		if err := link.Refuse(); err != nil {
			t.Fatal(err)
		}
		link.Reset()
	}
	own.awaitReplacement(t)
	t.Logf("%v after the cut, a pod with tolerations of its own has been replaced", time.Since(began).Round(time.Second))
	poll.Eventually(t, "the other node is tainted", func() bool { _, away := autonomy.AwaySince(get(t, released)); return away })
	for _, a := range append(stay, leave...) {
		a.stayed(t)
	}

	given := time.Now()
	annotate(t, released, api.ReleasedAnnotation, given.Format(time.RFC3339))
	for _, a := range leave {
		a.awaitEvicted(t)
	}
	t.Logf("evicted %v after the release", time.Since(given).Round(100*time.Millisecond))
	leave[0].awaitReplacement(t)

	stay[0].awaitEndpoints(t, false)
	awaitReturn := stay[0].followReturn(t, kept)
	for _, node := range []string{kept, released} {
		if err := env.cluster.Node(node).Link().Up(); err != nil {
			t.Fatal(err)
		}
	}
	returned := time.Now()
	for _, a := range append(leave, own) { // that they are gone shows that kubelet has seen the cloud again
		poll.Eventually(t, a.name+": kubelet has ended the evicted pod", func() bool { return a.first(t) == nil })
	}
	t.Logf("kubelets have ended the evicted pods %v after the return", time.Since(returned).Round(100*time.Millisecond))
	for _, a := range leave {
		poll.Eventually(t, a.name+": another pod is Ready, alone", func() bool {
			all := a.pods(t)
			return len(all) == 1 && isReady(&all[0])
		})
	}
	awaitCondition(t, released, corev1.ConditionTrue, autonomy.ReasonApplied)
	if text, ok := get(t, released).Annotations[api.ReleasedAnnotation]; ok {
		t.Errorf("the annotation of the release is still there: %s", text)
	}
	for _, a := range stay {
		poll.Eventually(t, a.name+": the cloud sees the pod as Ready", func() bool { pod := a.first(t); return pod != nil && isReady(pod) })
		a.stayed(t)
	}
	awaitReturn(returned)
	t.Logf("the kept pods are Ready in the cloud %v after the return", time.Since(returned).Round(100*time.Millisecond))
}

func get(t *testing.T, node string) *corev1.Node {
	t.Helper()
	n, err := env.client.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
