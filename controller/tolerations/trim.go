package tolerations

import (
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/autonomy"
	"github.com/edgehub-io/edgehub/ota/api"
)

// trimNode keeps what package autonomy reads of a Node.
func (c *Controller) trimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil // the tombstone of a deleted node
	}
	out := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}
	for _, key := range []string{api.AutonomyAnnotation, api.OldAutonomyAnnotation, api.ReleasedAnnotation} {
		if value, ok := n.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&out.ObjectMeta, key, value)
		}
	}
	if c.Fleet.Selector != nil {
		out.Labels = n.Labels
	}
	if autonomy.Away(n) {
		out.Spec.Taints = n.Spec.Taints
	}
	if condition := autonomy.ConditionOf(n); condition != nil {
		out.Status.Conditions = []corev1.NodeCondition{*condition}
	}
	return out, nil
}

// boundPod is what package autonomy reads of a pod. A corev1.Pod with no more in it takes three times the memory.
type boundPod struct {
	metav1.ObjectMeta
	node        string
	tolerations []corev1.Toleration
}

// whole returns the pod in the form that package autonomy reads.
func (p *boundPod) whole() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: corev1.PodSpec{NodeName: p.node, Tolerations: p.tolerations}}
}

// nodeOf is an index of pods.
func nodeOf(o any) ([]string, error) {
	pod, ok := o.(*boundPod)
	if !ok {
		return nil, nil
	}
	return []string{pod.node}, nil
}

// trimPod keeps a boundPod. Of a pod that never needs a patch, it keeps what an informer itself needs.
func trimPod(o any) (any, error) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // trimmed already, or the tombstone of a deleted pod
	}
	meta := metav1.ObjectMeta{Namespace: unique.Make(pod.Namespace).Value(), Name: pod.Name, ResourceVersion: pod.ResourceVersion}
	if autonomy.Exempt(pod) {
		return &meta, nil
	}
	meta.UID = pod.UID
	for _, key := range []string{api.OriginalNotReadyAnnotation, api.OriginalUnreachableAnnotation} {
		if value, ok := pod.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&meta, key, value)
		}
	}
	out := &boundPod{ObjectMeta: meta, node: unique.Make(pod.Spec.NodeName).Value(), tolerations: slices.Clone(pod.Spec.Tolerations)}
	for i := range out.tolerations { // most are of a few
		t := &out.tolerations[i]
		t.Key, t.Value = unique.Make(t.Key).Value(), unique.Make(t.Value).Value()
		t.Operator, t.Effect = unique.Make(t.Operator).Value(), unique.Make(t.Effect).Value()
	}
	return out, nil
}
