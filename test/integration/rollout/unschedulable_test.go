package rollout_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rolloutenv"
)

// request changes the CPUs that the pod template asks for, and its image.
func request(d *rolloutenv.DaemonSet, cpus, image string) {
	d.Patch(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":%q,"resources":{"requests":{"cpu":%q}}}]}}}}`, image, cpus)
}

// pending counts the pods that are not scheduled.
func pending(t *testing.T, d *rolloutenv.DaemonSet) int {
	t.Helper()
	list, err := s.Admin.CoreV1().Pods(d.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// heal has every node of a DaemonSet run a pod that asks for more than the node has,
// corrects the template, and returns how long it takes until every node has the
// correct pod. before is called in between.
func heal(t *testing.T, d *rolloutenv.DaemonSet, before func()) time.Duration {
	t.Helper()
	request(d, "100", "app:2")
	poll.Eventually(t, "no pod can be scheduled", func() bool { return pending(t, d) == nodes })
	before()
	begin := time.Now()
	request(d, "10m", "app:3")
	d.Await("app:3", nodes)
	return time.Since(begin)
}

// A pod that no node has room for has no spec.nodeName. It is replaced all the same,
// and no later than Kubernetes' own RollingUpdate replaces it.
func TestUnschedulablePodsAreReplacedAsSoonAsByRollingUpdate(t *testing.T) {
	native := s.NewDaemonSet(t, nil, func(ds *appsv1.DaemonSet) {
		clear(ds.Annotations)
		all := intstr.FromString("100%")
		ds.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
			Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &all},
		}
	})
	limit := heal(t, native, func() {})

	p := newPlay(t, nodes, nil)
	p.start()
	took := heal(t, p.DaemonSet, func() {
		p.AwaitCondition(rollout.ProgressingCondition, corev1.ConditionTrue, rollout.ReasonUpdating,
			"0 of 10 nodes updated, 10 unavailable", "n1: pod is not scheduled: Unschedulable")
	})
	p.AwaitCondition(rollout.CompleteCondition, corev1.ConditionTrue, rollout.ReasonComplete)
	t.Logf("RollingUpdate took %v, AdvancedRollingUpdate %v", limit, took)
	if limit = 2*limit + 5*time.Second; took > limit {
		t.Errorf("it took %v, want at most %v", took, limit)
	}
}

// Like any other new pod that is not available, a pod that cannot be scheduled uses up
// the maximum: a template that asks for too much does not take the daemon off every node.
func TestUnschedulablePodsUseUpTheMaximum(t *testing.T) {
	p := newPlay(t, 2, nil)
	p.start()
	first := p.firsts(2)
	request(p.DaemonSet, "100", "app:2")
	p.stands(rollout.ReasonUpdating, first...)
	request(p.DaemonSet, "10m", "app:3")
	p.Await("app:3", nodes)
}
