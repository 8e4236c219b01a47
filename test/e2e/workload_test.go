package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// patience is how long anything may take that a cluster does by itself.
const patience = poll.Patience

// eventually polls until check returns "", and fails with what it returned last.
func eventually(t *testing.T, what string, check func(context.Context) string) {
	t.Helper()
	eventuallyWithin(t.Context(), t, what, check)
}

// eventuallyWithin is eventually until ctx ends.
func eventuallyWithin(ctx context.Context, t *testing.T, what string, check func(context.Context) string) {
	t.Helper()
	poll.Check(ctx, t, what, func(ctx context.Context) error {
		if said := check(ctx); said != "" {
			return errors.New(said)
		}
		return nil
	})
}

// namespace makes a namespace that is deleted, with its pods, when the test ends.
func namespace(t *testing.T, name string) string {
	t.Helper()
	spaces := env.client.CoreV1().Namespaces()
	if _, err := spaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := spaces.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "service account of "+name, func(ctx context.Context) string {
		_, err := env.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return words(err)
	})
	return name
}

func words(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// podTemplate runs the first version of the test app.
func podTemplate() corev1.PodTemplateSpec {
	grace := int64(1)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "app"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "app", Image: env.Image("v1"), Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
			}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		},
	}
}

// otaDaemonSet is upgraded when its nodes' owners start it.
func otaDaemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"apps.openyurt.io/update-strategy": "OTA"}},
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "app"}},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
			Template:       podTemplate(),
		},
	}
}

// createDaemonSet waits until the daemon runs on every node.
func createDaemonSet(t *testing.T, ns string, ds *appsv1.DaemonSet) {
	t.Helper()
	if _, err := env.client.AppsV1().DaemonSets(ns).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, node := range env.Nodes() {
		readyPodOn(t, ns, node.Name(), "")
	}
}

func setVersion(t *testing.T, ns, ds, version string) {
	t.Helper()
	setImage(t, ns, ds, env.Image(version))
}

func setImage(t *testing.T, ns, ds, image string) {
	t.Helper()
	patchTemplate(t, ns, ds, fmt.Sprintf(`{"containers":[{"name":"app","image":%q}]}`, image))
}

// patchTemplate changes the template's spec, by a strategic merge.
func patchTemplate(t *testing.T, ns, ds, spec string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":%s}}}`, spec)
	if _, err := env.client.AppsV1().DaemonSets(ns).Patch(t.Context(), ds, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// readyPodOn waits for a pod with the labels of podTemplate that is Ready on
// node, and is not the one with the UID not.
func readyPodOn(t *testing.T, ns, node string, not types.UID) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, "a Ready pod in "+ns+" on "+node, func(ctx context.Context) string {
		pods, err := env.client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{LabelSelector: "app=app", FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			return err.Error()
		}
		states := []string{"no pod"}
		for _, pod := range pods.Items {
			if pod.UID != not && pod.DeletionTimestamp == nil && isReady(&pod) {
				found = &pod
				return ""
			}
			states = append(states, fmt.Sprintf("%s is %s (%+v)", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses))
		}
		return strings.Join(states, "; ")
	})
	return found
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// answers waits until the pod's app answers that it is this version.
func answers(t *testing.T, pod *corev1.Pod, version string) {
	t.Helper()
	eventually(t, "answer of "+pod.Name, func(ctx context.Context) string {
		code, body := rawclient.Ask(ctx, http.MethodGet, "http://"+pod.Status.PodIP+":8080/")
		if code != http.StatusOK || body != version+"\n" {
			return fmt.Sprintf("%d %q, want 200 %q", code, body, version)
		}
		return ""
	})
}
