package informer

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// unscheduledPod is one that the DaemonSet controller made for a node and that the
// scheduler finds no room for.
func unscheduledPod(node string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			},
		}}},
	}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/10 nodes"},
	}
	return pod
}

func TestATrimmedPodKeepsTheNodeThatItIsFor(t *testing.T) {
	original := trimPod(unscheduledPod("n1"), false)
	if got := rollout.NodeOf(original); got != "n1" {
		t.Errorf("it is for node %q, want n1", got)
	}
	gated := unscheduledPod("n1")
	gated.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
	if !podsDiffer(original, trimPod(gated, false)) {
		t.Error("that it waits for something else now goes unnoticed")
	}
	reworded := unscheduledPod("n1")
	reworded.Status.Conditions[0].Message = "0/11 nodes"
	if podsDiffer(original, trimPod(reworded, false)) {
		t.Error("the scheduler's words change all the time, and are taken for a change")
	}
	scheduled := unscheduledPod("n1")
	scheduled.Spec.NodeName = "n1"
	if after := trimPod(scheduled, false); after.Spec.Affinity != nil || !podsDiffer(original, after) {
		t.Errorf("once it is scheduled, its affinity %v is of no use, and the change is one", after.Spec.Affinity)
	}
}

func TestImageConditionsAreKeptAndTheirChangesNoticed(t *testing.T) {
	trimmed := func(change func(*corev1.PodCondition)) *corev1.Pod {
		pod := &corev1.Pod{}
		pod.Status.Conditions = []corev1.PodCondition{{Type: api.ImageCondition, Status: corev1.ConditionFalse, Message: api.Message("new")}}
		change(api.Condition(pod, api.ImageCondition))
		return trimPod(pod, false)
	}
	first := trimmed(func(*corev1.PodCondition) {})
	if c := api.Condition(first, api.ImageCondition); c == nil || api.RevisionOf(c) != "new" {
		t.Fatalf("got %+v", c)
	}
	for name, tt := range map[string]struct {
		change func(*corev1.PodCondition)
		want   bool
	}{
		"the status":   {func(c *corev1.PodCondition) { c.Status = corev1.ConditionTrue }, true},
		"the reason":   {func(c *corev1.PodCondition) { c.Reason = "PrepullUnauthorized" }, true},
		"the revision": {func(c *corev1.PodCondition) { c.Message = api.Message("newer") }, true},
		"a time only":  {func(c *corev1.PodCondition) { c.LastTransitionTime = metav1.Now() }, false},
	} {
		if got := podsDiffer(first, trimmed(tt.change)); got != tt.want {
			t.Errorf("%s changed: got %t", name, got)
		}
	}
}

func TestTrimmedDaemonSetsKeepWhatIsRead(t *testing.T) {
	ds := &appsv1.DaemonSet{}
	ds.Status.Conditions = []appsv1.DaemonSetCondition{rollout.Invalid("problem"), {Type: "SomebodyElses", Status: corev1.ConditionTrue}}
	ds.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": "long",
		"apps.openyurt.io/update-strategy":                 "AdvancedRollingUpdate", api.PausedAnnotation: "true",
	}
	ds.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
	ds.Spec.MinReadySeconds = 5
	ds.Spec.Template.Spec = corev1.PodSpec{
		Containers: []corev1.Container{{Name: "app"}}, NodeSelector: map[string]string{"a": "b"}, HostNetwork: true,
		Tolerations: []corev1.Toleration{{Key: "x"}}, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}, PodAffinity: &corev1.PodAffinity{}},
	}
	got := TrimDaemonSet(ds)
	spec := &got.Spec.Template.Spec
	if spec.Containers != nil || spec.Affinity.PodAffinity != nil || len(got.Annotations) != 2 || len(got.Status.Conditions) != 1 {
		t.Errorf("got more than is read: %v", got)
	}
	if spec.NodeSelector == nil || !spec.HostNetwork || spec.Tolerations == nil || spec.Affinity.NodeAffinity == nil || got.Spec.MinReadySeconds != 5 {
		t.Errorf("got less than is read: %v", got)
	}
	ds.Annotations = nil
	if TrimDaemonSet(ds).Spec.Template.Spec.NodeSelector != nil {
		t.Error("the template of one that did not opt in is kept")
	}
}

func TestImagesAreKeptOfPodsThatAreToBeRolledBack(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1", Command: []string{"init"}}}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:2", Command: []string{"app"}}}
	if got := trimPod(pod, false); got.Spec.Containers != nil || got.Spec.InitContainers != nil {
		t.Errorf("got %+v, which is more than is read", got.Spec)
	}
	pod.Annotations = map[string]string{api.RollbackAnnotation: api.Rollback{Revision: "old", From: "new"}.Encode()}
	got := trimPod(pod, false)
	target := api.NewTarget("", &got.Spec)
	if !slices.Equal(target.Images(), []api.TargetImage{{Name: "init", Image: "init:1"}, {Name: "app", Image: "app:2"}}) || got.Spec.Containers[0].Command != nil {
		t.Errorf("got %+v", got.Spec)
	}
}
