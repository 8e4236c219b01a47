package room

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

// cpu is a pod of this name that requests so much.
func cpu(name, quantity string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name, UID: types.UID(name)}}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)},
	}}}
	for _, c := range change {
		c(&p)
	}
	return p
}

// A pod that waits for a node takes what an old pod leaves before the next one is created. What a node sees of its own pods
// is in ota's TestAPodWithoutRoomForItsSuccessorIsKept.
func TestPodsThatWaitTakeTheRoomOfTheOldOne(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "ssd"}}}
	node.Spec.Taints = []corev1.Taint{{Key: "line", Value: "3", Effect: corev1.TaintEffectNoSchedule}}
	node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourcePods: resource.MustParse("10")}
	old := cpu("old", "2")
	tolerates := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "line", Operator: corev1.TolerationOpExists}}
	}
	priority := func(n int32) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.Priority = &n } }
	port := func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} }
	unschedulable := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	}
	waits := func(quantity string, change ...func(*corev1.Pod)) corev1.Pod {
		return cpu("waits-"+quantity, quantity, append([]func(*corev1.Pod){tolerates, unschedulable}, change...)...)
	}
	nominated := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.NominatedNodeName = name } }
	never := func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) }
	ends := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	for name, tt := range map[string]struct {
		others  []corev1.Pod // on the node, beside old
		waiting []corev1.Pod
		ports   []api.HostPort
		by      string // the pod that takes the room; "" if there is room
	}{
		"it fits once the old one is gone":        {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1")}, nil, "waits-1"},
		"there is room for both":                  {nil, []corev1.Pod{waits("1")}, nil, ""},
		"it has room already, and waits for more": {[]corev1.Pod{cpu("a", "1")}, []corev1.Pod{waits("1")}, nil, ""},
		"it does not fit then, either":            {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("3")}, nil, ""},
		"a lower priority":                        {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1", priority(-1))}, nil, ""},
		"a higher priority":                       {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1", priority(1))}, nil, "waits-1"},
		"it does not tolerate the node's taint":   {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{cpu("waits-1", "1", unschedulable)}, nil, ""},
		"it wants another node": {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1", func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "none"}
		})}, nil, ""},
		"it may not be scheduled yet": {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1", func(p *corev1.Pod) {
			p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated
		})}, nil, ""},
		"it is being deleted":                                   {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1", ends)}, nil, ""},
		"others end for it here":                                {[]corev1.Pod{cpu("a", "2", ends)}, []corev1.Pod{waits("3", nominated("n1"))}, nil, "waits-3"},
		"others end for it elsewhere":                           {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1", nominated("n2"))}, nil, ""},
		"a lower priority, and the next pod has nobody evicted": {[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("1", priority(-1))}, nil, "waits-1"},
		"two, and the first leaves room":                        {nil, []corev1.Pod{waits("2500m"), waits("3", priority(-1))}, nil, "waits-2500m"},
		"the one of the higher priority goes first, and leaves no room for the other": {
			[]corev1.Pod{cpu("a", "2")}, []corev1.Pod{waits("2"), waits("1500m", priority(7))}, nil, "waits-1500m",
		},
		"it wants the port of the old one": {nil, []corev1.Pod{waits("0", port)}, []api.HostPort{{Port: 80}}, "waits-0"},
	} {
		t.Run(name, func(t *testing.T) {
			old := old.DeepCopy()
			for range tt.ports {
				port(old)
			}
			if strings.Contains(name, "has nobody evicted") {
				never(old)
			}
			target := api.Target{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}, HostPorts: tt.ports}
			got := Obstacle(node, old, target, append([]corev1.Pod{*old}, tt.others...), tt.waiting)
			if (got == "") != (tt.by == "") || !strings.Contains(got, tt.by) {
				t.Errorf("got %q, want %q", got, tt.by)
			}
		})
	}
}
