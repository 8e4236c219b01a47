package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWhichNodesShouldRunADaemon(t *testing.T) {
	const noSchedule, noExecute = corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	affinity := func(op corev1.NodeSelectorOperator, values ...string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: op, Values: values}}}},
		}}}
	}
	tests := map[string]struct {
		template corev1.PodSpec
		taints   []corev1.Taint
		should   bool
		gets     bool
	}{
		"any":                               {should: true, gets: true},
		"its labels match":                  {template: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}, should: true, gets: true},
		"its labels do not match":           {template: corev1.PodSpec{NodeSelector: map[string]string{"zone": "b"}}},
		"its name":                          {template: corev1.PodSpec{NodeName: "node"}, should: true, gets: true},
		"another's name":                    {template: corev1.PodSpec{NodeName: "other"}},
		"an affinity that matches":          {template: corev1.PodSpec{Affinity: affinity(corev1.NodeSelectorOpIn, "a", "b")}, should: true, gets: true},
		"an affinity that does not":         {template: corev1.PodSpec{Affinity: affinity(corev1.NodeSelectorOpNotIn, "a")}},
		"an affinity that cannot be parsed": {template: corev1.PodSpec{Affinity: affinity("Near", "a")}},
		"a taint":                           {taints: []corev1.Taint{{Key: "gpu", Effect: noSchedule}}},
		"a taint that only pleads":          {taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}}, should: true, gets: true},
		"a taint that is tolerated": {
			template: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}},
			taints:   []corev1.Taint{{Key: "gpu", Effect: noExecute}}, should: true, gets: true,
		},
		"cordoned":            {taints: []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: noSchedule}}, should: true, gets: true},
		"under pressure":      {taints: []corev1.Taint{{Key: corev1.TaintNodeDiskPressure, Effect: noSchedule}, {Key: corev1.TaintNodeMemoryPressure, Effect: noSchedule}, {Key: corev1.TaintNodePIDPressure, Effect: noSchedule}}, should: true, gets: true},
		"without its network": {taints: []corev1.Taint{{Key: corev1.TaintNodeNetworkUnavailable, Effect: noSchedule}}},
		"without its network, which the daemon makes": {
			template: corev1.PodSpec{HostNetwork: true},
			taints:   []corev1.Taint{{Key: corev1.TaintNodeNetworkUnavailable, Effect: noSchedule}}, should: true, gets: true,
		},
		"cut off, with both taints that brings": {
			taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: noSchedule}, {Key: corev1.TaintNodeUnreachable, Effect: noExecute}},
			should: true,
		},
		"not ready, for a daemon that tolerates all": {
			template: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}},
			taints:   []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: noSchedule}}, should: true, gets: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{}
			node.Name, node.Labels, node.Spec.Taints = "node", map[string]string{"zone": "a"}, tt.taints
			p := New(RuleOf(&tt.template))
			if should, gets := p.ShouldRun(node), p.CanSchedule(node); should != tt.should || gets != tt.gets {
				t.Errorf("should run it: %v, gets it now: %v; want %v and %v", should, gets, tt.should, tt.gets)
			}
			if obstacle := p.Obstacle(node); (obstacle == "") != tt.should {
				t.Errorf("the obstacle is %q", obstacle)
			}
		})
	}
}

func TestObstaclesAreNamed(t *testing.T) {
	node := &corev1.Node{}
	node.Name = "node"
	for want, template := range map[string]corev1.PodSpec{
		"node node is not other, which the new version is for":                                        {NodeName: "other"},
		"the labels of node node do not match the new version's nodeSelector or node affinity":        {NodeSelector: map[string]string{"zone": "b"}},
		"node node has the taint dedicated=line3:NoSchedule, which the new version does not tolerate": {},
	} {
		node.Spec.Taints = nil
		if strings.Contains(want, "taint") {
			node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "line3", Effect: corev1.TaintEffectNoSchedule}}
		}
		if got := New(RuleOf(&template)).Obstacle(node); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
