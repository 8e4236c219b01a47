package autonomy

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/test/internal/poll"
)

const (
	deployment  = "deployment"
	statefulSet = "statefulset"
)

// app is a Deployment or a StatefulSet of one pod, which begins on a node and may move to the spare one.
type app struct {
	name      string
	uid       types.UID
	container string // ID of the first one
}

// start starts one, with tolerations of its own for so many seconds if they are given, and returns when its pod is Ready.
func start(t *testing.T, kind, node string, seconds *int64) *app {
	t.Helper()
	a := &app{name: fmt.Sprintf("%s-%s", kind, node)}
	if seconds != nil {
		a.name += "-own"
	}
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"app": a.name}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels.MatchLabels}}
	template.Spec.TerminationGracePeriodSeconds = new(int64(1))
	template.Spec.Containers = []corev1.Container{{Name: "app", Image: env.cluster.Image("v1")}}
	on := func(nodes ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes}}}
	}
	template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{on(node, spare)}},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: on(node)}},
	}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if seconds != nil {
			template.Spec.Tolerations = append(template.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds,
			})
		}
	}
	apps, meta := env.client.AppsV1(), metav1.ObjectMeta{Name: a.name}
	var err error
	if kind == deployment {
		_, err = apps.Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: labels, Template: template}}, metav1.CreateOptions{})
	} else {
		_, err = apps.StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: labels, Template: template}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	poll.Eventually(t, a.name+": its pod is Ready on "+node, func() bool {
		all := a.pods(t)
		if len(all) != 1 || all[0].Spec.NodeName != node || !isReady(&all[0]) {
			return false
		}
		a.uid, a.container = all[0].UID, all[0].Status.ContainerStatuses[0].ContainerID
		return true
	})
	return a
}

// pods returns all that there are.
func (a *app) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := env.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + a.name})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// first returns the first pod; nil if it is gone.
func (a *app) first(t *testing.T) *corev1.Pod {
	t.Helper()
	all := a.pods(t)
	for i := range all {
		if all[i].UID == a.uid {
			return &all[i]
		}
	}
	return nil
}

// stayed fails unless there is the first pod and no other, with the first container.
func (a *app) stayed(t *testing.T) {
	t.Helper()
	all := a.pods(t)
	if len(all) != 1 || all[0].UID != a.uid || all[0].DeletionTimestamp != nil {
		t.Errorf("pods of %s, of which one was to stay: %+v", a.name, all)
		return
	}
	if c := all[0].Status.ContainerStatuses[0]; c.ContainerID != a.container || c.RestartCount != 0 {
		t.Errorf("%s has the container %s, which has restarted %d times; it had %s", a.name, c.ContainerID, c.RestartCount, a.container)
	}
}

func (a *app) awaitEvicted(t *testing.T) {
	t.Helper()
	poll.Eventually(t, a.name+": its pod is evicted", func() bool { pod := a.first(t); return pod == nil || pod.DeletionTimestamp != nil })
}

// awaitReplacement waits until another pod is Ready on the spare node.
func (a *app) awaitReplacement(t *testing.T) {
	t.Helper()
	poll.Eventually(t, a.name+": another pod is Ready elsewhere", func() bool {
		for _, pod := range a.pods(t) {
			if pod.UID != a.uid && pod.Spec.NodeName == spare && isReady(&pod) {
				return true
			}
		}
		return false
	})
}

func isReady(pod *corev1.Pod) bool {
	c := api.Condition(pod, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

func annotate(t *testing.T, node, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value)
	if _, err := env.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func awaitCondition(t *testing.T, node string, status corev1.ConditionStatus, reason string) {
	t.Helper()
	poll.Check(t.Context(), t, node+": the condition is "+reason, func(context.Context) error {
		if c := autonomy.ConditionOf(get(t, node)); c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
}
