package rollout

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/api/placement"
)

// nodePods is a node that should run the daemon, and its pods.
type nodePods struct {
	node     *corev1.Node
	observed nodeObservation
	// live pods are not being deleted; terminating ones are, and still run.
	live        []*corev1.Pod
	terminating []*corev1.Pod
}

// nodePods returns the nodes that should run the daemon, in the order of Nodes, and those that
// should not and run an old pod of it. A pod whose Node object is missing is in none of them.
func (in *Input) nodePods(rule placement.Placement) (nodes, misplaced []nodePods) {
	live, terminating := map[string][]*corev1.Pod{}, map[string][]*corev1.Pod{}
	for _, pod := range in.Pods {
		switch {
		case !in.isTerminating(pod):
			live[NodeOf(pod)] = append(live[NodeOf(pod)], pod)
		case !terminal(pod):
			terminating[NodeOf(pod)] = append(terminating[NodeOf(pod)], pod)
		}
	}
	nodes = make([]nodePods, 0, len(in.Nodes))
	for _, node := range in.Nodes {
		p := nodePods{node: node, observed: in.Observations.nodes[node.Name], live: live[node.Name], terminating: terminating[node.Name]}
		switch {
		case rule.ShouldRun(node):
			nodes = append(nodes, p)
		case slices.ContainsFunc(p.live, func(pod *corev1.Pod) bool { return revisionOf(pod) != in.Revision && !terminal(pod) }):
			misplaced = append(misplaced, p)
		}
	}
	return nodes, misplaced
}

// isTerminating reports whether pod is being deleted, or its deletion has been sent.
func (in *Input) isTerminating(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero() || (in.Deleted != nil && in.Deleted(pod.UID))
}

// terminal pods run nothing any more. A terminal pod that is being deleted, and stays
// because of a finalizer, does not block its node.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// only returns the node's pod if it has exactly one.
func (p *nodePods) only() (*corev1.Pod, bool) {
	if len(p.live) == 1 && len(p.terminating) == 0 {
		return p.live[0], true
	}
	return nil, false
}

// at returns the node's pod if it has exactly one, of this revision, and bound to the node.
func (p *nodePods) at(revision string) (*corev1.Pod, bool) {
	pod, ok := p.only()
	return pod, ok && revisionOf(pod) == revision && scheduled(pod)
}

// noPod is nodePods.conflict of a node without any.
const noPod = "no pod"

// conflict describes why there is not exactly one pod.
func (p *nodePods) conflict() string {
	switch {
	case len(p.terminating) > 0:
		return "a pod is terminating"
	case len(p.live) == 0:
		return noPod
	default:
		return fmt.Sprintf("%d pods", len(p.live))
	}
}

// revisionOf is "" for a pod without the label, which counts as old.
func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// notReadyReason describes in a few words why pod is not Ready.
func notReadyReason(pod *corev1.Pod) string {
	if terminal(pod) {
		if pod.Status.Reason != "" {
			return fmt.Sprintf("pod %s: %s", pod.Status.Phase, quotable(pod.Status.Reason))
		}
		return fmt.Sprintf("pod %s", pod.Status.Phase)
	}
	if !scheduled(pod) {
		return unscheduled(pod)
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range statuses {
			if w := statuses[i].State.Waiting; w != nil && w.Reason != "" {
				return fmt.Sprintf("container %s: %s", quotable(statuses[i].Name), quotable(w.Reason))
			}
		}
	}
	return "pod is not Ready"
}

// NodeOf returns the name of the node that pod runs on or, while the scheduler has not
// placed it, of the node that it was created for: the DaemonSet controller names that
// node in a required node affinity on the field metadata.name. It is "" for a pod that
// names no node, or more than one, as in GetTargetNodeName in Kubernetes'
// pkg/controller/daemon/util.
func NodeOf(pod *corev1.Pod) string {
	if scheduled(pod) {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key != metav1.ObjectNameField || field.Operator != corev1.NodeSelectorOpIn {
				continue
			}
			if len(field.Values) != 1 {
				return ""
			}
			return field.Values[0]
		}
	}
	return ""
}

// scheduled reports whether pod has been bound to its node. Until then, the node's kubelet
// and hub do not know it.
func scheduled(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" }

// unscheduled returns a short reason why pod is not scheduled.
func unscheduled(pod *corev1.Pod) string {
	c := api.Condition(pod, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason == "" {
		return "pod is not scheduled"
	}
	return "pod is not scheduled: " + quotable(c.Reason)
}
