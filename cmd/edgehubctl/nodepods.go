package main

import (
	"cmp"
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// nodePods returns the pods of this node, by namespace and name.
func (h *hub) nodePods(ctx context.Context) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := h.read(ctx, nodeapi.Pods, &list); err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// imagePulls returns the queue of images. A hub that pulls none has none.
func (h *hub) imagePulls(ctx context.Context) ([]nodeapi.ImagePull, error) {
	var list nodeapi.ImagePullList
	err := h.readIfKnown(ctx, nodeapi.ImagePulls, &list)
	return list.Items, err
}

// needOf returns what the controller says of pod's upgrade, and to which revision
// it would be; nil if it has said nothing.
func needOf(pod *corev1.Pod) (need *corev1.PodCondition, revision string) {
	need = upgrade.Condition(pod, upgrade.NeedCondition)
	if need == nil {
		return nil, ""
	}
	return need, upgrade.RevisionOf(need)
}

func needsUpgrade(pod *corev1.Pod) bool {
	need, _ := needOf(pod)
	return need != nil && need.Status == corev1.ConditionTrue
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

// ownerOf is the UID of what replaces pod when it is deleted, "" if nothing does.
func ownerOf(pod *corev1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.UID
	}
	return ""
}

func isReady(pod *corev1.Pod) bool {
	ready := upgrade.Condition(pod, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}
