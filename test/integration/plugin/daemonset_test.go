package plugin

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	strategyKey = "apps.openyurt.io/update-strategy"
	advanced    = "AdvancedRollingUpdate"
)

// fixture is a DaemonSet web in a namespace of its own.
type fixture struct {
	t         *testing.T
	namespace string
}

// newDaemonSet makes one and waits until it has an available pod on each node. It
// is gone, with its pods, before the next test.
func newDaemonSet(t *testing.T, annotations map[string]string) *fixture {
	t.Helper()
	ns, err := env.admin.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, namespace: ns.Name}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: annotations}}
	ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
	ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:v1"}}
	if _, err := env.admin.AppsV1().DaemonSets(f.namespace).Create(t.Context(), ds, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.remove)
	poll.Eventually(t, "each node has an available pod", func() bool { return f.get().Status.NumberAvailable == int32(len(nodeNames)) })
	return f
}

// remove works after the test's context has ended, too.
func (f *fixture) remove() {
	ctx := context.Background()
	background := metav1.DeletePropagationBackground
	_ = env.admin.AppsV1().DaemonSets(f.namespace).Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &background}) // it may be gone
	poll.Eventually(f.t, "its pods are gone", func() bool {
		list, err := env.admin.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

func (f *fixture) get() *appsv1.DaemonSet {
	f.t.Helper()
	ds, err := env.admin.AppsV1().DaemonSets(f.namespace).Get(f.t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return ds
}

// change gives the pods another image and waits until Kubernetes has its revision.
func (f *fixture) change(image string) {
	f.t.Helper()
	f.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q}]}}}}`, image)
	poll.Eventually(f.t, "Kubernetes has taken note of the new template", func() bool {
		ds := f.get()
		return ds.Status.ObservedGeneration == ds.Generation
	})
}

// patch takes a strategic merge patch of the DaemonSet.
func (f *fixture) patch(format string, args ...any) {
	f.t.Helper()
	_, err := env.admin.AppsV1().DaemonSets(f.namespace).Patch(f.t.Context(), "web", types.StrategicMergePatchType,
		fmt.Appendf(nil, format, args...), metav1.PatchOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
}

// setCondition sets a condition of the DaemonSet, as the controller does.
func (f *fixture) setCondition(kind, status, message string) {
	f.t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":%q,"message":%q}]}}`, kind, status, message)
	_, err := env.admin.AppsV1().DaemonSets(f.namespace).Patch(f.t.Context(), "web", types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}, "status")
	if err != nil {
		f.t.Fatal(err)
	}
}

// pod returns the one on a node that is not being deleted, nil if there is none.
func (f *fixture) pod(node string) *corev1.Pod {
	f.t.Helper()
	list, err := env.admin.CoreV1().Pods(f.namespace).List(f.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		f.t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			return &list.Items[i]
		}
	}
	return nil
}

// replace deletes a node's pod, and waits until its successor has been seen to by
// the node.
func (f *fixture) replace(node string) {
	f.t.Helper()
	old := f.pod(node)
	if err := env.admin.CoreV1().Pods(f.namespace).Delete(f.t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		f.t.Fatal(err)
	}
	poll.Eventually(f.t, "node "+node+" runs another pod", func() bool {
		pod := f.pod(node)
		return pod != nil && pod.UID != old.UID && len(pod.Status.ContainerStatuses) > 0
	})
}

// revision is the hash that a node's pod runs.
func (f *fixture) revision(node string) string {
	f.t.Helper()
	return f.pod(node).Labels[appsv1.ControllerRevisionHashLabelKey]
}
