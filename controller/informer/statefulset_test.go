package informer

import (
	"fmt"
	"runtime"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/ota/api"
)

// someStatefulSet is as large as one that an operator makes.
func someStatefulSet(name string) *appsv1.StatefulSet {
	sts := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Generation: 3,
		Labels:      map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "operator"},
		Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": fmt.Sprintf("%04000d", 0)},
	}}
	replicas := int32(3)
	sts.Spec.Replicas, sts.Spec.PodManagementPolicy = &replicas, appsv1.OrderedReadyPodManagement
	sts.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}}
	sts.Spec.Template.Labels = sts.Spec.Selector.MatchLabels
	sts.Spec.UpdateStrategy.Type, sts.Spec.MinReadySeconds = appsv1.OnDeleteStatefulSetStrategyType, 5
	for i := range 3 {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: "registry.example.com/db:1", Command: []string{"run", "it"}}
		for j := range 20 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("NAME", j), Value: fmt.Sprint("value", j)})
		}
		c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}
		sts.Spec.Template.Spec.Containers = append(sts.Spec.Template.Spec.Containers, c)
	}
	sts.Spec.ServiceName = name
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"app.kubernetes.io/name": name}}}
	claim.Spec.Resources.Requests = corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	sts.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{claim}
	sts.Status.ObservedGeneration, sts.Status.UpdateRevision, sts.Status.CurrentRevision = 3, name+"-new", name+"-old"
	return sts
}

func TestTrimmedStatefulSetsKeepWhatIsRead(t *testing.T) {
	sts := someStatefulSet("db")
	read := append(rollout.Annotations(), api.ReportAnnotation)
	for _, key := range read {
		sts.Annotations[key] = "a value"
	}
	got := TrimStatefulSet(sts)
	if len(got.Annotations) != len(read) || got.Labels != nil || got.Spec.Template.Labels != nil || got.Spec.Template.Spec.Containers != nil ||
		got.Spec.VolumeClaimTemplates[0].Labels != nil || got.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests != nil || got.Status.CurrentRevision != "" {
		t.Errorf("got more than is read: %v", got)
	}
	if got.UID != sts.UID || got.Spec.ServiceName != "db" || got.Spec.VolumeClaimTemplates[0].Name != "data" || got.Spec.Selector == nil || got.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType ||
		got.Spec.MinReadySeconds != 5 || got.Spec.Replicas == nil || got.Spec.PodManagementPolicy == "" || got.Generation != 3 || got.Status.ObservedGeneration != 3 || got.Status.UpdateRevision != "db-new" {
		t.Errorf("something that is read is missing: %v", got)
	}
	changed := sts.DeepCopy()
	changed.ResourceVersion, changed.Status.ReadyReplicas = "8", 1
	if differ(got, TrimStatefulSet(changed)) {
		t.Error("the number of Ready pods, which changes all the time, is taken for a change")
	}
	changed.Status.UpdateRevision = "db-newer"
	if !differ(got, TrimStatefulSet(changed)) {
		t.Error("another revision goes unnoticed")
	}
}

// BenchmarkStatefulSetThatDidNotOptIn shows what the controller keeps of one: B/object on the heap.
func BenchmarkStatefulSetThatDidNotOptIn(b *testing.B) {
	const n = 10000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		kept := make([]*appsv1.StatefulSet, 0, n)
		before := heap()
		for i := range n {
			kept = append(kept, TrimStatefulSet(someStatefulSet(fmt.Sprint("db-", i))))
		}
		b.ReportMetric(float64(heap()-before)/n, "B/object")
		runtime.KeepAlive(kept)
	}
}
