// Package placement decides on which nodes Kubernetes places the pods of a DaemonSet: for the controller, and for a node
// that looks at itself. Everything in it is a pure function.
package placement

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Rule is the part of a pod's spec that decides.
type Rule struct {
	NodeName     string               `json:"nodeName,omitempty"`
	NodeSelector map[string]string    `json:"nodeSelector,omitempty"`
	Affinity     *corev1.NodeSelector `json:"affinity,omitempty"` // that is required
	Tolerations  []corev1.Toleration  `json:"tolerations,omitempty"`
	HostNetwork  bool                 `json:"hostNetwork,omitempty"`
}

// RuleOf returns the rule of the pod template of a DaemonSet. Its fields are shared.
func RuleOf(template *corev1.PodSpec) Rule {
	r := Rule{NodeName: template.NodeName, NodeSelector: template.NodeSelector, Tolerations: template.Tolerations, HostNetwork: template.HostNetwork}
	if a := template.Affinity; a != nil && a.NodeAffinity != nil {
		r.Affinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return r
}

// Placement decides. The zero value is every node without a taint.
type Placement struct {
	nodeName    string
	affinity    nodeaffinity.RequiredNodeAffinity
	tolerations []corev1.Toleration
}

// New returns what a rule decides.
func New(r Rule) Placement {
	spec := corev1.PodSpec{NodeSelector: r.NodeSelector, Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: r.Affinity,
	}}}
	return Placement{
		nodeName:    r.NodeName,
		affinity:    nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec}),
		tolerations: append(AddedTolerations(r.HostNetwork), r.Tolerations...),
	}
}

// ShouldRun reports whether node should run the daemon when it is Ready. It answers
// as Kubernetes' DaemonSet controller does, except for the taints that come and go
// with Ready: a node does not leave the rollout when it loses its connection. An affinity
// that cannot be parsed matches nothing.
func (p Placement) ShouldRun(node *corev1.Node) bool {
	return p.matches(node) && p.untolerated(node, lasting) == nil
}

// Obstacle returns why node should not run the daemon, by its name; "" if ShouldRun.
func (p Placement) Obstacle(node *corev1.Node) string {
	switch {
	case p.nodeName != "" && p.nodeName != node.Name:
		return fmt.Sprintf("node %s is not %s, which the new version is for", node.Name, p.nodeName)
	case !p.matches(node):
		return fmt.Sprintf("the labels of node %s do not match the new version's nodeSelector or node affinity", node.Name)
	}
	if taint := p.untolerated(node, lasting); taint != nil {
		return fmt.Sprintf("node %s has the taint %s, which the new version does not tolerate", node.Name, taint.ToString())
	}
	return ""
}

// CanSchedule reports whether Kubernetes would create a pod on node now.
func (p Placement) CanSchedule(node *corev1.Node) bool {
	return p.matches(node) && p.untolerated(node, func(*corev1.Taint) bool { return true }) == nil
}

// CanTake reports whether the scheduler could place pod, of whatever kind, on node as far as labels and taints go.
func CanTake(node *corev1.Node, pod *corev1.Pod) bool {
	return Placement{affinity: nodeaffinity.GetRequiredNodeAffinity(pod), tolerations: pod.Spec.Tolerations}.CanSchedule(node)
}

func (p Placement) matches(node *corev1.Node) bool {
	if p.nodeName != "" && p.nodeName != node.Name {
		return false
	}
	matches, err := p.affinity.Match(node)
	return err == nil && matches
}

// lasting is false for a taint that the node lifecycle controller keeps on nodes that
// are not Ready, and takes off when they are. NoSchedule is among the effects,
// which the pods of a DaemonSet do not tolerate by themselves.
func lasting(t *corev1.Taint) bool {
	return t.Key != corev1.TaintNodeNotReady && t.Key != corev1.TaintNodeUnreachable
}

// untolerated returns a taint of node that keeps the daemon from it, of those that count, or nil.
func (p Placement) untolerated(node *corev1.Node, counts func(*corev1.Taint) bool) *corev1.Taint {
	repels := func(t *corev1.Taint) bool {
		return (t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute) && counts(t)
	}
	// Tolerations that compare numbers exist only where the feature is on.
	taint, repelled := schedulingcorev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, p.tolerations, repels, true)
	if !repelled {
		return nil
	}
	return &taint
}

// AddedTolerations are those that the DaemonSet controller gives every pod of a
// DaemonSet (AddOrUpdateDaemonPodTolerations in its util package).
func AddedTolerations(hostNetwork bool) []corev1.Toleration {
	tolerate := func(key string, effect corev1.TaintEffect) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	}
	out := []corev1.Toleration{
		tolerate(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute),
		tolerate(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute),
		tolerate(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule),
		tolerate(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule),
	}
	if hostNetwork {
		out = append(out, tolerate(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule))
	}
	return out
}
