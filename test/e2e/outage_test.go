package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// TestPodsLiveOnWhileTheCloudIsAway (invariant 22) takes the cloud away from a node, lets what can
// happen to a node happen to it, and gives the cloud back, where two things have
// changed meanwhile: those two are done, and nothing else is touched.
func TestPodsLiveOnWhileTheCloudIsAway(t *testing.T) {
	t.Parallel()
	for how, node := range map[string]string{"refused": "node1", "black hole": "node2"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			e := newEdge(t, "outage-"+strings.ReplaceAll(how, " ", "-"), node)
			e.createDaemon()
			names := []string{"doomed", "one", "two", "three", "untouched"}
			for _, name := range names {
				e.create(name, nil)
			}
			pods := map[string]started{}
			for _, name := range names {
				pods[name] = e.running(name)
			}
			daemon := readyPodOn(t, e.ns, node, "")

			e.cut(how)
			began := time.Now()
			untouched := e.steady(map[string]started{"untouched": pods["untouched"], "doomed": pods["doomed"]})
			e.changeTheCloud()
			restarted := e.disturb(pods)
			select { // for the long form
			case <-time.After(time.Until(began.Add(env.outage))):
			case <-t.Context().Done():
			}
			untouched()
			answers(t, daemon, "v1")

			settled := map[string]started{"untouched": pods["untouched"]}
			for _, s := range restarted {
				settled[s.pod.Name] = s
			}
			e.comeBack(daemon, settled)
			for name, want := range map[string]int32{"untouched": 0, "one": 1, "two": 1, "three": 1} {
				e.expectRestarts(pods[name].pod, want)
			}
		})
	}
}

// disturb kills a container, restarts kubelet, kills the hub, and sees after each
// that kubelet looks after its pods.
func (e *edge) disturb(pods map[string]started) []started {
	e.t.Helper()
	one, two, three := pods["one"], pods["two"], pods["three"]
	e.kill(&one)
	others := e.steady(map[string]started{"one": one, "two": two, "three": three})
	if err := e.node.KubeletProcess().Restart(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	others()

	others = e.steady(map[string]started{"one": one, "three": three})
	e.kill(&two)
	if err := e.node.HubProcess().Kill(); err != nil {
		e.t.Fatal(err)
	}
	if err := e.node.HubProcess().Start(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	awaitUpstream(e.t, e.node, 0)
	others()

	// With the hub that came, and with a kubelet that knows nothing but what it says.
	others = e.steady(map[string]started{"one": one, "two": two})
	if err := e.node.KubeletProcess().Restart(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
	e.kill(&three)
	others()
	return []started{one, two, three}
}

// changeTheCloud is what the node has to follow when it is back.
func (e *edge) changeTheCloud() {
	e.t.Helper()
	setVersion(e.t, e.ns, "daemon", "v2")
	if err := env.client.CoreV1().Pods(e.ns).Delete(e.t.Context(), "doomed", metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
}

// comeBack gives the cloud back, waits until the node has followed changeTheCloud,
// and sees that those that had settled were left alone.
func (e *edge) comeBack(daemon *corev1.Pod, settled map[string]started) {
	e.t.Helper()
	others := e.steady(settled)
	began := time.Now()
	if err := e.node.Link().Up(); err != nil {
		e.t.Fatal(err)
	}
	awaitUpstream(e.t, e.node, 1)
	e.t.Logf("the return was noticed after %v", time.Since(began).Round(time.Millisecond))
	answers(e.t, readyPodOn(e.t, e.ns, e.node.Name(), daemon.UID), "v2")
	e.t.Logf("the new daemon serves after %v", time.Since(began).Round(time.Millisecond))
	eventually(e.t, "the deleted pod is gone", func(ctx context.Context) string {
		_, err := env.client.CoreV1().Pods(e.ns).Get(ctx, "doomed", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("it is still there, %v", err)
	})
	awaitNode(e.t, e.node)
	others()
}

// expectRestarts waits until the cloud knows the same pod, Ready, with as many
// restarts.
func (e *edge) expectRestarts(pod *corev1.Pod, want int32) {
	e.t.Helper()
	eventually(e.t, fmt.Sprintf("the cloud knows %s with %d restarts", pod.Name, want), func(ctx context.Context) string {
		now, err := env.client.CoreV1().Pods(e.ns).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if now.UID != pod.UID || now.DeletionTimestamp != nil {
			e.t.Fatalf("pod %s was deleted or replaced", pod.Name)
		}
		if restarts := now.Status.ContainerStatuses[0].RestartCount; restarts != want || !isReady(now) {
			return fmt.Sprintf("%d restarts, Ready %v", restarts, isReady(now))
		}
		return ""
	})
}

func awaitNode(t *testing.T, node *cluster.Node) {
	t.Helper()
	eventually(t, node.Name()+" is Ready", func(ctx context.Context) string {
		object, err := env.client.CoreV1().Nodes().Get(ctx, node.Name(), metav1.GetOptions{})
		if err == nil && !nodeReady(object) {
			err = errors.New("it is not")
		}
		return words(err)
	})
}
