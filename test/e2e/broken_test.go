package e2e

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/cluster"
)

// TestTheOwnerIsToldOfABrokenVersion upgrades a pod, as its node's owner does it, to a
// version that crashes, to one that does not exist, and to one that runs.
func TestTheOwnerIsToldOfABrokenVersion(t *testing.T) {
	ns, node := namespace(t, "broken"), env.Node("node1")
	ds := otaDaemonSet("app")
	ds.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name()}
	ds.Spec.MinReadySeconds = 2
	if _, err := env.client.AppsV1().DaemonSets(ns).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := readyPodOn(t, ns, node.Name(), "")

	pod = upgradeWait(t, node, pod, env.Image("broken"), 5,
		"CrashLoopBackOff, restarts: ", "last exit code 1", "kubectl logs ", "sudo edgehubctl logs --previous ", "kubectl rollout undo daemonset/app")
	if code, out := edgehubctl(t, node, "pods", "-n", ns); code != 0 || !strings.Contains(out, "CrashLoopBackOff") && !strings.Contains(out, "Error") {
		t.Errorf("pods: %d\n%s", code, out)
	}
	pod = upgradeWait(t, node, pod, env.Image("nowhere"), 5, "container app: ", "nowhere", "kubectl describe pod ")
	upgradeWait(t, node, pod, env.Image("v2"), 0, "has stayed so for 2s")
}

// upgradeWait has a pod upgraded to an image, and returns its successor. edgehubctl ends
// with this exit code and has these words in its output.
func upgradeWait(t *testing.T, node *cluster.Node, pod *corev1.Pod, image string, want int, words ...string) *corev1.Pod {
	t.Helper()
	setImage(t, pod.Namespace, "app", image)
	needs(t, node, pod, corev1.ConditionTrue)
	code, out := edgehubctl(t, node, "upgrade", "--no-pull", "--wait", pod.Namespace+"/"+pod.Name)
	if code != want {
		t.Errorf("an upgrade to %s: exit code %d, want %d\n%s", image, code, want, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("an upgrade to %s: %q is missing in\n%s", image, w, out)
		}
	}
	var successor *corev1.Pod
	eventually(t, "there is a pod in place of "+pod.Name, func(ctx context.Context) string {
		list, err := podsOf(ctx, node)
		if err != nil {
			return err.Error()
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Namespace == pod.Namespace && p.UID != pod.UID && p.DeletionTimestamp == nil {
				successor = p
				return ""
			}
		}
		return "there is none"
	})
	return successor
}

// edgehubctl runs the node's owner's tool, and returns its exit code and all its output.
func edgehubctl(t *testing.T, node *cluster.Node, args ...string) (code int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	args = append(args, "--address", strings.TrimPrefix(node.APIURL(), "http://"))
	text, err := exec.CommandContext(ctx, filepath.Join(binaries, "edgehubctl"), args...).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), string(text)
	} else if err != nil {
		t.Fatalf("edgehubctl %s: %v", strings.Join(args, " "), err)
	}
	return 0, string(text)
}
