package informer

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/status"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// The trim functions keep what a reconcile reads and what an informer needs (name, UID and
// resourceVersion).

// TrimDaemonSet drops most of the pod template, which is most of a DaemonSet: the
// images of a revision are read from its ControllerRevision. For a DaemonSet that opted in,
// it keeps the fields that decide on which nodes its pods run.
func TrimDaemonSet(ds *appsv1.DaemonSet) *appsv1.DaemonSet {
	out := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         ds.Namespace,
			Name:              ds.Name,
			UID:               ds.UID,
			ResourceVersion:   ds.ResourceVersion,
			Generation:        ds.Generation,
			DeletionTimestamp: ds.DeletionTimestamp,
			Annotations:       only(ds.Annotations, append(rollout.Annotations(), api.ReportAnnotation, appsv1.DeprecatedTemplateGeneration)...),
		},
		Spec: appsv1.DaemonSetSpec{
			Selector:        ds.Spec.Selector,
			UpdateStrategy:  appsv1.DaemonSetUpdateStrategy{Type: ds.Spec.UpdateStrategy.Type},
			MinReadySeconds: ds.Spec.MinReadySeconds,
		},
		Status: appsv1.DaemonSetStatus{ObservedGeneration: ds.Status.ObservedGeneration, Conditions: status.OwnedConditions(ds)},
	}
	if wanted, _ := daemonset.StrategyOf(ds); wanted != daemonset.Unmanaged {
		out.Spec.Template.Spec = trimTemplate(&ds.Spec.Template.Spec)
	}
	return out
}

// TrimStatefulSet drops everything that the strategy OTA does not read: most of all the template,
// and the numbers in the status, which change with each pod.
func TrimStatefulSet(sts *appsv1.StatefulSet) *appsv1.StatefulSet {
	var claims []corev1.PersistentVolumeClaim // of those that opted in, by name
	if wanted, _ := workload.StrategyOf(sts); wanted != daemonset.Unmanaged {
		for i := range sts.Spec.VolumeClaimTemplates {
			claims = append(claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: sts.Spec.VolumeClaimTemplates[i].Name}})
		}
	}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         sts.Namespace,
			Name:              sts.Name,
			UID:               sts.UID,
			ResourceVersion:   sts.ResourceVersion,
			Generation:        sts.Generation,
			DeletionTimestamp: sts.DeletionTimestamp,
			Annotations:       only(sts.Annotations, append(rollout.Annotations(), api.ReportAnnotation)...),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:             sts.Spec.Replicas,
			Selector:             sts.Spec.Selector,
			ServiceName:          sts.Spec.ServiceName,
			VolumeClaimTemplates: claims,
			PodManagementPolicy:  sts.Spec.PodManagementPolicy,
			Ordinals:             sts.Spec.Ordinals,
			UpdateStrategy:       appsv1.StatefulSetUpdateStrategy{Type: sts.Spec.UpdateStrategy.Type},
			MinReadySeconds:      sts.Spec.MinReadySeconds,
		},
		Status: appsv1.StatefulSetStatus{
			ObservedGeneration: sts.Status.ObservedGeneration,
			UpdateRevision:     sts.Status.UpdateRevision,
		},
	}
}

// trimTemplate keeps what placement.RuleOf reads.
func trimTemplate(spec *corev1.PodSpec) corev1.PodSpec {
	out := corev1.PodSpec{
		NodeName:     spec.NodeName,
		NodeSelector: spec.NodeSelector,
		Tolerations:  spec.Tolerations,
		HostNetwork:  spec.HostNetwork,
	}
	if spec.Affinity != nil {
		out.Affinity = &corev1.Affinity{NodeAffinity: spec.Affinity.NodeAffinity}
	}
	return out
}

// trimNode keeps a node's identity, its labels and taints, whether it is Ready, the version of its kubelet, and the annotation
// with its missing pods.
func trimNode(node *corev1.Node) *corev1.Node {
	out := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node.Name,
			UID:             node.UID,
			ResourceVersion: node.ResourceVersion,
			Labels:          node.Labels,
			Annotations:     only(node.Annotations, api.MissingAnnotation),
		},
		Spec: corev1.NodeSpec{Taints: node.Spec.Taints},
	}
	out.Status.NodeInfo.KubeletVersion = node.Status.NodeInfo.KubeletVersion
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{
				Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			}}
		}
	}
	return out
}

// trimPod keeps a pod's identity, owner, node, mark, hold, phase, readiness, and why its
// containers wait. Of a pod whose owner wants an earlier revision, and with images of every one, it keeps the images.
func trimPod(pod *corev1.Pod, images bool) *corev1.Pod {
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            only(pod.Labels, appsv1.ControllerRevisionHashLabelKey),
			Annotations:       only(pod.Annotations, api.TargetAnnotation, api.PolicyAnnotation, api.HoldAnnotation, api.RollbackAnnotation, api.QuestionAnnotation, api.UpgradedOfflineAnnotation),
			OwnerReferences:   pod.OwnerReferences,
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase:                 pod.Status.Phase,
			Reason:                pod.Status.Reason,
			InitContainerStatuses: trimContainers(pod.Status.InitContainerStatuses),
			ContainerStatuses:     trimContainers(pod.Status.ContainerStatuses),
		},
	}
	if pod.Spec.NodeName == "" && pod.Spec.Affinity != nil { // rollout.NodeOf reads the node there
		out.Spec.Affinity = &corev1.Affinity{NodeAffinity: pod.Spec.Affinity.NodeAffinity}
	}
	if _, ok := pod.Annotations[api.RollbackAnnotation]; ok || images {
		out.Spec.InitContainers, out.Spec.Containers = trimImages(pod.Spec.InitContainers), trimImages(pod.Spec.Containers)
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		kept := corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason}
		switch {
		case c.Type == corev1.PodReady:
			kept.LastTransitionTime = c.LastTransitionTime
		case c.Type == api.NeedCondition, c.Type == api.ImageCondition, c.Type == api.RolledBackCondition, c.Type == api.UpgradedOfflineCondition, c.Type == api.ReconciledCondition:
			kept.Message = c.Message
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			kept.Message = c.Message
		default:
			continue
		}
		out.Status.Conditions = append(out.Status.Conditions, kept)
	}
	return out
}

// podsDiffer is differ, but for what the scheduler says, which changes with each node of the cluster.
func podsDiffer(before, after *corev1.Pod) bool { return differ(wordless(before), wordless(after)) }

func wordless(pod *corev1.Pod) *corev1.Pod {
	out := *pod
	out.Status.Conditions = slices.Clone(pod.Status.Conditions)
	for i := range out.Status.Conditions {
		if c := &out.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			c.Message = ""
		}
	}
	return &out
}

// nodesDiffer is differ, but for what the controller itself writes.
func nodesDiffer(before, after *corev1.Node) bool {
	old, now := *before, *after
	old.Annotations, now.Annotations = nil, nil
	return differ(&old, &now)
}

func trimImages(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range containers {
		out = append(out, corev1.Container{Name: containers[i].Name, Image: containers[i].Image})
	}
	return out
}

// trimContainers keeps the containers that wait, which most do not.
func trimContainers(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range statuses {
		if w := statuses[i].State.Waiting; w != nil && w.Reason != "" {
			out = append(out, corev1.ContainerStatus{
				Name:  statuses[i].Name,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: w.Reason}},
			})
		}
	}
	return out
}

// trimRevision drops labels and annotations that a ControllerRevision copies from its
// DaemonSet, kubectl's copy of the whole object among them.
func trimRevision(revision *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       revision.Namespace,
			Name:            revision.Name,
			UID:             revision.UID,
			ResourceVersion: revision.ResourceVersion,
			Labels:          only(revision.Labels, appsv1.ControllerRevisionHashLabelKey),
			OwnerReferences: revision.OwnerReferences,
		},
		Revision: revision.Revision,
		Data:     revision.Data,
	}
}

// only returns the entries of m with these keys, nil when there is none.
func only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, key := range keys {
		if value, ok := m[key]; ok {
			if out == nil {
				out = make(map[string]string, len(keys))
			}
			out[key] = value
		}
	}
	return out
}
