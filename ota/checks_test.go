package ota

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/placement"
)

// upgradable returns a pod that passes every check, after changing it.
func upgradable(change ...func(*corev1.Pod)) *corev1.Pod {
	isController := true
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-1", UID: "uid-1",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "DaemonSet", Name: "web", Controller: &isController,
			}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: api.NeedCondition, Status: corev1.ConditionTrue, Message: api.Message("new")},
		}},
	}
	for _, c := range change {
		c(pod)
	}
	return pod
}

// condition sets one condition, in place of one of its type.
func condition(t corev1.PodConditionType, status corev1.ConditionStatus, message string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		c := corev1.PodCondition{Type: t, Status: status, Message: message}
		if old := api.Condition(pod, t); old != nil {
			*old = c
			return
		}
		pod.Status.Conditions = append(pod.Status.Conditions, c)
	}
}

func deleting(pod *corev1.Pod) {
	now := metav1.Now()
	pod.DeletionTimestamp = &now
}

func ownedBy(owners ...metav1.OwnerReference) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.OwnerReferences = owners }
}

func ofStatefulSet(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "StatefulSet" }

func TestChecks(t *testing.T) {
	yes := true
	unmarked := func(pod *corev1.Pod) { pod.Status.Conditions = nil }
	need := func(status corev1.ConditionStatus) func(*corev1.Pod) {
		return condition(api.NeedCondition, status, api.Message("new"))
	}
	images := func(status corev1.ConditionStatus, message string) func(*corev1.Pod) {
		return condition(api.ImageCondition, status, message)
	}
	owner := func(apiVersion, kind string, controller *bool) func(*corev1.Pod) {
		return ownedBy(metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "web", Controller: controller})
	}
	target := func(revision, blocked string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			t := api.NewTarget(revision, &corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v2"}}})
			t.Blocked = blocked
			pod.Annotations = map[string]string{api.TargetAnnotation: t.Encode()}
		}
	}
	ready := api.Message("new")
	tests := map[string]struct {
		change func(*corev1.Pod)
		code   int
		says   string
	}{
		"a pod that needs an upgrade passes":                            {need(corev1.ConditionTrue), http.StatusOK, ""},
		"a pod whose images are ready passes":                           {images(corev1.ConditionTrue, ready), http.StatusOK, ""},
		"a pod being deleted is left alone":                             {deleting, http.StatusForbidden, "deleted already"},
		"a pod without the condition needs no upgrade":                  {unmarked, http.StatusForbidden, "no condition PodNeedUpgrade"},
		"a pod at the newest revision needs no upgrade":                 {need(corev1.ConditionFalse), http.StatusForbidden, "needs no upgrade"},
		"a pod whose need is unknown needs no upgrade":                  {need(corev1.ConditionUnknown), http.StatusForbidden, "needs no upgrade"},
		"images being pulled hold the upgrade back":                     {images(corev1.ConditionFalse, ready), http.StatusForbidden, "not on this node yet"},
		"images in an unknown state hold the upgrade back":              {images(corev1.ConditionUnknown, ready), http.StatusForbidden, "not on this node yet"},
		"images of another revision hold the upgrade back":              {images(corev1.ConditionTrue, api.Message("old")), http.StatusForbidden, `of revision "old"`},
		"images of an unnamed revision hold the upgrade back":           {images(corev1.ConditionTrue, "ready"), http.StatusForbidden, `of revision ""`},
		"a pod without owner would not be replaced":                     {ownedBy(), http.StatusBadRequest, "no controlling owner"},
		"a pod whose node would get no other is kept":                   {target("new", "node n has the taint a"), http.StatusForbidden, "would not come back: node n has the taint a"},
		"what blocks another revision does not count":                   {target("between", "node n has the taint a"), http.StatusOK, ""},
		"an owner that does not control the pod does not replace it":    {owner("apps/v1", "DaemonSet", nil), http.StatusBadRequest, "no controlling owner"},
		"a ReplicaSet may replace a pod on another node":                {owner("apps/v1", "ReplicaSet", &yes), http.StatusBadRequest, `ReplicaSet "web"`},
		"a StatefulSet makes a pod of the same name":                    {owner("apps/v1", "StatefulSet", &yes), http.StatusOK, ""},
		"a StatefulSet that does not control the pod does not":          {owner("apps/v1", "StatefulSet", nil), http.StatusBadRequest, "no controlling owner"},
		"a StatefulSet of another API group is not Kubernetes'":         {owner("apps.kruise.io/v1beta1", "StatefulSet", &yes), http.StatusBadRequest, "only pods of a DaemonSet or StatefulSet of apps/v1"},
		"a DaemonSet of another API group is not Kubernetes' DaemonSet": {owner("apps.example.com/v1", "DaemonSet", &yes), http.StatusBadRequest, "apps.example.com/v1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := (&server{}).checkUpgrade(upgradable(tt.change))
			if got := codeOf(err); got != tt.code {
				t.Fatalf("got code %d (%v), want %d", got, err, tt.code)
			}
			if err != nil && !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %q, want it to say %q", err, tt.says)
			}
		})
	}
}

// A pod that fails every check is corrected step by step: after each step, the next check in
// the order that clients depend on must fail.
func TestChecksRunInOrder(t *testing.T) {
	pod := upgradable(
		deleting,
		condition(api.NeedCondition, corev1.ConditionFalse, api.Message("new")),
		condition(api.ImageCondition, corev1.ConditionFalse, api.Message("new")),
		ownedBy(),
	)
	steps := []struct {
		says    string
		correct func(*corev1.Pod)
	}{
		{"deleted already", func(pod *corev1.Pod) { pod.DeletionTimestamp = nil }},
		{"needs no upgrade", condition(api.NeedCondition, corev1.ConditionTrue, api.Message("new"))},
		{"not on this node yet", condition(api.ImageCondition, corev1.ConditionTrue, api.Message("old"))},
		{`of revision "old"`, condition(api.ImageCondition, corev1.ConditionTrue, api.Message("new"))},
		{"no controlling owner", ownedBy(upgradable().OwnerReferences...)},
	}
	for _, step := range steps {
		err := (&server{}).checkUpgrade(pod)
		if err == nil || !strings.Contains(err.Error(), step.says) {
			t.Fatalf("got %v, want an error that says %q", err, step.says)
		}
		step.correct(pod)
	}
	if err := (&server{}).checkUpgrade(pod); err != nil {
		t.Errorf("corrected pod: got %v, want none", err)
	}
}

// The node has 4 CPU; the pod that would be upgraded has one of them.
func TestAPodWithoutRoomForItsSuccessorIsKept(t *testing.T) {
	cpu := func(quantity string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(quantity)}
	}
	other := func(requests string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", UID: "other"}}
		p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: cpu(requests)}}}
		change(p)
		return p
	}
	same := func(*corev1.Pod) {}
	resizing := func(reason string) func(*corev1.Pod) { // in place, from 1
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{AllocatedResources: cpu("1"), Resources: &corev1.ResourceRequirements{Requests: cpu("1")}}}
			if reason != "" {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason}}
			}
		}
	}
	ports := func(ports ...corev1.ContainerPort) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Ports = ports }
	}
	wet, never := []corev1.Toleration{{Key: "wet", Operator: corev1.TolerationOpExists}}, corev1.PreemptNever
	for name, tt := range map[string]struct {
		requests corev1.ResourceRequirements
		other    *corev1.Pod
		says     string
		change   func(pod *corev1.Pod, target *api.Target)
	}{
		"it requests what the old one has":   {corev1.ResourceRequirements{Requests: cpu("1")}, other("3", same), "", nil},
		"it requests more than is free":      {corev1.ResourceRequirements{Requests: cpu("1500m")}, other("3", same), "requests 1500m of cpu, and node node-1 has 1 of 4 for it", nil},
		"its limit is its request":           {corev1.ResourceRequirements{Limits: cpu("2")}, other("3", same), "requests 2 of cpu", nil},
		"it requests nothing on a full node": {corev1.ResourceRequirements{Requests: cpu("0")}, other("5", same), "", nil},
		"it requests what the node has not":  {corev1.ResourceRequirements{Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}}, other("1", same), "has 0 of 0 for it", nil},
		"another ends, and comes back":       {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", func(p *corev1.Pod) { deleting(p); p.OwnerReferences = upgradable().OwnerReferences }), "has 1 of 4 for it", nil},
		"another of a StatefulSet ends, and may come back": {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", func(p *corev1.Pod) {
			deleting(p)
			p.OwnerReferences = upgradable().OwnerReferences
			p.OwnerReferences[0].Kind = "StatefulSet"
		}), "has 1 of 4 for it", nil},
		"another ends, and comes back as a larger one": {corev1.ResourceRequirements{Requests: cpu("1")}, other("1", func(p *corev1.Pod) {
			deleting(p)
			p.OwnerReferences, p.Status = upgradable().OwnerReferences, upgradable().Status
			larger := api.NewTarget("new", &corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Resources: corev1.ResourceRequirements{Requests: cpu("3500m")}}}})
			p.Annotations = map[string]string{api.TargetAnnotation: larger.Encode()}
		}), "has 500m of 4 for it", nil},
		"another ends":                                {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", deleting), "", nil},
		"another has ended":                           {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), "", nil},
		"another wants more, and cannot have it":      {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", resizing(corev1.PodReasonInfeasible)), "", nil},
		"another wants more, and will have it":        {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", resizing(corev1.PodReasonDeferred)), "has 1 of 4 for it", nil},
		"another has more than it wants, for a while": {corev1.ResourceRequirements{Requests: cpu("4")}, other("0", resizing("")), "has 3 of 4 for it", nil},
		"another has to go, having a lower priority":  {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1)) }), "", nil},
		"it evicts nobody": {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", func(p *corev1.Pod) { p.Spec.Priority = new(int32(-1)) }), "has 1 of 4 for it",
			func(pod *corev1.Pod, _ *api.Target) { pod.Spec.PreemptionPolicy = &never }},
		"the new version has another priority": {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", same), "",
			func(_ *corev1.Pod, target *api.Target) { target.PriorityClassName = "high" }},
		"there is place for no more pods": {corev1.ResourceRequirements{Requests: cpu("0")}, other("0", func(p *corev1.Pod) { p.Name = "three" }), "node node-1 has all of its 3 pods", nil},
		"another has its port": {corev1.ResourceRequirements{}, other("0", ports(corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolTCP})), "pod default/other has port 80 of node node-1",
			func(_ *corev1.Pod, target *api.Target) {
				target.HostPorts = []api.HostPort{{Port: 80, IP: "127.0.0.1"}}
			}},
		"another has its port at another address, and by another protocol": {corev1.ResourceRequirements{}, other("0", ports(
			corev1.ContainerPort{HostPort: 80, HostIP: "10.0.0.1"}, corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolUDP}, corev1.ContainerPort{ContainerPort: 80})), "",
			func(_ *corev1.Pod, target *api.Target) {
				target.HostPorts = []api.HostPort{{Port: 80, IP: "127.0.0.1"}}
			}},
		"another has its port, and has to go": {corev1.ResourceRequirements{}, other("0", func(p *corev1.Pod) {
			ports(corev1.ContainerPort{HostPort: 80})(p)
			p.Spec.Priority = new(int32(-1))
		}), "", func(_ *corev1.Pod, target *api.Target) { target.HostPorts = []api.HostPort{{Port: 80}} }},
		"the node has got a taint": {corev1.ResourceRequirements{}, other("0", same), "node node-1 has the taint wet:NoSchedule, which the new version does not tolerate",
			func(_ *corev1.Pod, target *api.Target) { target.Placement = &placement.Rule{} }},
		"the node has got another label": {corev1.ResourceRequirements{}, other("0", same), "the labels of node node-1 do not match",
			func(_ *corev1.Pod, target *api.Target) {
				target.Placement = &placement.Rule{Tolerations: wet, NodeSelector: map[string]string{"disk": "none"}}
			}},
		"the node suits it": {corev1.ResourceRequirements{}, other("0", same), "",
			func(_ *corev1.Pod, target *api.Target) {
				target.Placement = &placement.Rule{Tolerations: wet, NodeSelector: map[string]string{"disk": "ssd"}}
			}},
		"the template names no priority class, and the cluster gives all pods one": {corev1.ResourceRequirements{Requests: cpu("2")}, other("3", same), "has 1 of 4 for it",
			func(pod *corev1.Pod, _ *api.Target) { pod.Spec.PriorityClassName = "everybodys" }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := upgradable()
			pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: cpu("1")}}}
			target := api.NewTarget("new", &corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v2", Resources: tt.requests}}})
			if tt.change != nil {
				tt.change(pod, &target)
			}
			pod.Annotations = map[string]string{api.TargetAnnotation: target.Encode()}
			pods := []*corev1.Pod{pod, tt.other}
			if tt.other.Name == "three" {
				pods = append(pods, other("0", same), other("0", same))
			}
			c := &cloud{delete: accept, list: podList(pods...), cpus: "4"}
			got := call(t, "POST", c.start(t, Options{})+upgradeWeb1)
			_, deletes := c.asked()
			if goes := tt.says == ""; (got.code == http.StatusOK) != goes || (len(deletes) == 1) != goes || !strings.Contains(got.body, tt.says) {
				t.Errorf("%d %s, and %d were deleted; want it to say %q", got.code, got.body, len(deletes), tt.says)
			}
		})
	}
}
