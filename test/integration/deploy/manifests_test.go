package deploy

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// overlays are the folders of deploy/ that can be applied, "" for itself, and how
// many pods they make.
var overlays = map[string]int{
	"":                         2,
	"overlays/single":          1,
	"overlays/known-apiserver": 2,
	"overlays/monitoring":      2,
}

// apply applies a folder of deploy/.
func apply(t *testing.T, folder string) {
	t.Helper()
	applyStrictly(t, "-k", filepath.Join(moduleRoot, "deploy", folder))
}

// applyStrictly takes an unknown field for an error, and a warning too, such as that
// a pod would be refused.
func applyStrictly(t *testing.T, what ...string) {
	t.Helper()
	out, err := env.cluster.Kubectl(t.Context(), append([]string{"apply", "--server-side", "--force-conflicts", "--validate=strict", "--warnings-as-errors"}, what...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// Pods are proof that Pod Security, the quota and the ServiceAccount let the
// Deployment have them: it is the ReplicaSet's controller that makes them.
func TestEveryOverlayIsTakenAndMakesItsPods(t *testing.T) {
	applyOperatorCRDs(t)
	for folder, pods := range overlays {
		t.Run("deploy/"+folder, func(t *testing.T) {
			apply(t, folder)
			t.Cleanup(func() { remove(t) })
			awaitPods(t, pods)
		})
	}
}

// awaitPods waits for pods of the controller, which stay Pending: nothing runs them.
func awaitPods(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("there are %d pods of the controller", want), func() string {
		list, err := env.admin.CoreV1().Pods(systemNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + account})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) == want {
			return ""
		}
		return fmt.Sprintf("there are %d: %s", len(list.Items), failures(t))
	})
	if said := failures(t); said != "" {
		t.Errorf("a controller of Kubernetes says: %s", said)
	}
}

// failures is what went wrong in the namespace.
func failures(t *testing.T) string {
	t.Helper()
	list, err := env.admin.CoreV1().Events(systemNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for i := range list.Items {
		// That no node is free for them is the scheduler's to report.
		if e := &list.Items[i]; e.Type == corev1.EventTypeWarning && strings.HasPrefix(e.Reason, "Failed") && e.Reason != "FailedScheduling" {
			out = append(out, e.Message)
		}
	}
	return strings.Join(out, "; ")
}

// remove takes away what the next is not to find.
func remove(t *testing.T) {
	t.Helper()
	ctx := context.Background()
	if _, err := env.cluster.Kubectl(ctx, "-n", systemNamespace, "delete", "deployment", "--all"); err != nil {
		t.Error(err)
	}
	now := int64(0)
	eventually(t, "its pods are gone", func() string {
		err := env.admin.CoreV1().Pods(systemNamespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		list, err := env.admin.CoreV1().Pods(systemNamespace).List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return words(err)
		}
		return fmt.Sprintf("there are %d", len(list.Items))
	})
	if err := env.admin.CoreV1().Events(systemNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}
