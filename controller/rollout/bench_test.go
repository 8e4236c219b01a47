package rollout

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// BenchmarkMake is one step of a rollout on 5,000 nodes, halfway.
func BenchmarkMake(b *testing.B) { benchmarkMake(b, halfway(), Burst) }

// BenchmarkMakeImagesFirst has every old pod wait for its images, told at a few
// different times.
func BenchmarkMakeImagesFirst(b *testing.B) {
	in := halfway()
	in.Options.Prepull, in.Options.PrepullTimeout = true, DefaultPrepullTimeout
	for i, pod := range in.Pods {
		told := api.Target{Revision: target, Containers: []api.TargetImage{{Name: "app", Image: "registry.example.com/team/app:2"}},
			Prepull: &metav1.Time{Time: start.Add(time.Duration(i%10) * time.Second)}}
		pod.Annotations = map[string]string{api.TargetAnnotation: told.Encode()}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: api.ImageCondition, Message: api.Message(target)})
	}
	benchmarkMake(b, in, 0)
}

func halfway() Input {
	const nodes = 5000
	in := Input{DaemonSet: &appsv1.DaemonSet{}, Options: Options{MaxUnavailable: DefaultMaxUnavailable}, Revision: target, Observations: NewObservations(), Now: start}
	in.DaemonSet.Spec.Template.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"}
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"kubernetes.io/os": "linux", "name": name}}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-" + name, UID: types.UID("pod-" + name)}}
		pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: []string{oldRevision, target}[i%2]}
		pod.Spec.NodeName, pod.Status.Phase = name, corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		in.Nodes, in.Pods = append(in.Nodes, node), append(in.Pods, pod)
	}
	return in
}

func benchmarkMake(b *testing.B, in Input, deletions int) {
	NewPlan(in)
	in.Now = start.Add(time.Minute)
	b.ReportAllocs()
	for b.Loop() {
		if p := NewPlan(in); len(p.Delete) != deletions {
			b.Fatalf("%d deletions", len(p.Delete))
		}
	}
}
