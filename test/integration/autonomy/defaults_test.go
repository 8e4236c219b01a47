package autonomy

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/edgehub-io/edgehub/controller"
	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/controller/successor"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

// The controller was not told that the apiserver gives pods 3 s in place of 300. Without the right to ask, the condition
// says that no pod stays; with it, they stay.
func TestTheApiserversDefaultsAreAsked(t *testing.T) {
	notTold := controller.Options{Namespace: "edgehub-system", Autonomy: &autonomy.Fleet{Defaults: autonomy.Same(300)}}
	s := newSite(t, "asked", "1h")
	first := env.deployed.StartController(t, notTold, nil)
	s.awaitCondition(corev1.ConditionFalse, autonomy.ReasonNoEffect, "no pod stays while this node is away", "--default-toleration-seconds")
	s.awaitEvent(autonomy.ReasonNoEffect)
	s.awaitTolerations(toleration)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	mayCreateDryRuns(t)
	env.deployed.StartController(t, notTold, nil)
	s.awaitTolerations("3600")
	s.awaitCondition(corev1.ConditionTrue, autonomy.ReasonApplied, "for up to 1h0m0s")
	s.cutOff()
	s.stayed()
	s.annotate(api.AutonomyAnnotation, "")
	s.awaitEvicted() // with the 3 s that they had
}

// mayCreateDryRuns gives the controller the right until the test ends, with the policy that leaves nothing of it but dry runs.
func mayCreateDryRuns(t *testing.T) {
	t.Helper()
	for _, file := range []string{"dry-run.yaml", "dry-run-binding.yaml", "dry-run-role.yaml", "dry-run-rolebinding.yaml"} {
		path := filepath.Join(moduleRoot, "deploy", "admission", file)
		if out, err := env.cluster.Kubectl(t.Context(), "apply", "-f", path); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Cleanup(func() {
			_, _ = env.cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "--ignore-not-found", "-f", path)
		})
	}
	account, err := kubernetes.NewForConfig(env.deployed.AccountConfig())
	if err != nil {
		t.Fatal(err)
	}
	pods := account.CoreV1().Pods("default")
	poll.Eventually(t, "the policy is in force", func() bool {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "policy-"}}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "edgehub.io/never"}}
		pod.Spec.Containers = []corev1.Container{{Name: "none", Image: "none.invalid/none"}}
		created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
		if err == nil {
			_ = env.admin.CoreV1().Pods(created.Namespace).Delete(t.Context(), created.Name, metav1.DeleteOptions{})
		}
		return err != nil && strings.Contains(err.Error(), successor.Policy)
	})
}
