// Package successor asks an apiserver what would become of the pod that Kubernetes makes after a pod
// of a workload is deleted: whether admission lets it in, and with which images and requests.
//
// The question is the creation of that pod as a dry run, under the controller's own account. What it
// is answered is right at that moment only: what it depends on (policies, quotas, webhooks) cannot
// all be watched.
package successor

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api/placement"
)

// PodOf returns the pod that the controller of a DaemonSet makes for a node (CreatePodTemplate and
// ReplaceDaemonSetPodNodeNameNodeAffinity in Kubernetes' pkg/controller/daemon/util), or that of a
// StatefulSet in place of a pod (newVersionedStatefulSetPod in pkg/controller/statefulset). revision
// is one of the workload's.
//
// Its owner reference does not block the owner's deletion: OwnerReferencesPermissionEnforcement would
// ask for a right to finalize the workload.
func PodOf(o workload.Object, revision *appsv1.ControllerRevision, old *corev1.Pod) (*corev1.Pod, error) {
	var data struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(revision.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("read ControllerRevision %s/%s: %w", revision.Namespace, revision.Name, err)
	}
	template := &data.Spec.Template
	isController := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), GenerateName: o.GetName() + "-",
			Labels: map[string]string{}, Annotations: template.Annotations, Finalizers: template.Finalizers,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: appsv1.SchemeGroupVersion.String(), Kind: string(workload.KindOf(o)),
				Name: o.GetName(), UID: o.GetUID(), Controller: &isController,
			}},
		},
		Spec: template.Spec,
	}
	maps.Copy(pod.Labels, template.Labels)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = daemonset.HashOf(revision)
	if sts, ok := o.(*appsv1.StatefulSet); ok {
		inPlaceOf(pod, sts, old.Name)
		return pod, nil
	}
	if generation, ok := o.GetAnnotations()[appsv1.DeprecatedTemplateGeneration]; ok {
		pod.Labels[deprecatedGenerationLabel] = generation
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, placement.AddedTolerations(pod.Spec.HostNetwork)...)
	bind(&pod.Spec, rollout.NodeOf(old))
	return pod, nil
}

// deprecatedGenerationLabel is extensions/v1beta1's DaemonSetTemplateGenerationKey, which pods still have.
const deprecatedGenerationLabel = "pod-template-generation"

// bind has the scheduler place a pod on this node only, whatever node affinity the template requires.
func bind(spec *corev1.PodSpec, node string) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{
			Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node},
		}}}},
	}
}

// inPlaceOf gives a pod what the pod of this name has of a StatefulSet: identity, and the claims of its
// volumes, which come before the template's.
func inPlaceOf(pod *corev1.Pod, sts *appsv1.StatefulSet, name string) {
	pod.Name, pod.GenerateName = name, ""
	pod.Labels[appsv1.StatefulSetPodNameLabel] = name
	pod.Labels[appsv1.PodIndexLabel] = name[strings.LastIndexByte(name, '-')+1:]
	pod.Spec.Hostname, pod.Spec.Subdomain = name, sts.Spec.ServiceName
	var volumes []corev1.Volume
	for _, template := range sts.Spec.VolumeClaimTemplates {
		volumes = append(volumes, corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: template.Name + "-" + name},
		}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(claim corev1.Volume) bool { return claim.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}
