package ota

import (
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/ota/api"
)

// checkUpgrade returns nil if a pod of this node may be upgraded now, and otherwise the failure
// of the first check. Clients depend on the order of the checks.
func (s *server) checkUpgrade(pod *corev1.Pod) error {
	return check(pod, as(Gone, checkNotDeleting), as(Void, checkNeed), as(NoImages, s.checkImage), as(Void, checkOwner), checkPlacement)
}

// check returns the first error of the checks.
func check(pod *corev1.Pod, checks ...func(*corev1.Pod) error) error {
	for _, c := range checks {
		if err := c(pod); err != nil {
			return err
		}
	}
	return nil
}

func checkNotDeleting(pod *corev1.Pod) error {
	if pod.DeletionTimestamp == nil {
		return nil
	}
	return failf(http.StatusForbidden, "pod %s/%s is being deleted already: wait for its successor, GET /pods shows it", pod.Namespace, pod.Name)
}

func checkNeed(pod *corev1.Pod) error {
	need := api.Condition(pod, api.NeedCondition)
	switch {
	case need == nil:
		return failf(http.StatusForbidden,
			"pod %s/%s has no condition %s: it is not known to need an upgrade; if its DaemonSet or StatefulSet was just changed, wait for edgehub-controller to mark the pod, GET /pods shows it",
			pod.Namespace, pod.Name, api.NeedCondition)
	case need.Status != corev1.ConditionTrue:
		return failf(http.StatusForbidden,
			"pod %s/%s needs no upgrade: its condition %s is %s (%s); there is nothing to do",
			pod.Namespace, pod.Name, api.NeedCondition, need.Status, need.Message)
	}
	return nil
}

// checkImage fails while the images of the pod's upgrade are being pulled, or others are on the node. It relies on
// checkNeed.
func (s *server) checkImage(pod *corev1.Pod) error {
	image := s.imageCondition(pod)
	if image == nil {
		return nil
	}
	got, want := api.RevisionOf(image), api.RevisionOf(api.Condition(pod, api.NeedCondition))
	switch {
	case image.Reason == api.ReasonTargetChanged:
		return failf(http.StatusForbidden,
			"the images that were pulled for pod %s/%s are of another revision than the upgrade would be to by now: POST …/imagepull pulls those of the new one, DELETE …/imagepull lets the upgrade go without",
			pod.Namespace, pod.Name)
	case image.Status != corev1.ConditionTrue:
		return failf(http.StatusForbidden,
			"the images for pod %s/%s are not on this node yet: its condition %s is %s (%s %s); wait until it is True, which GET /pods shows, or DELETE …/imagepull to upgrade without",
			pod.Namespace, pod.Name, api.ImageCondition, image.Status, image.Reason, image.Message)
	case got != want:
		return failf(http.StatusForbidden,
			"the images on this node for pod %s/%s are of revision %q, the upgrade is to revision %q: POST …/imagepull to pull those, and wait until condition %s names that revision, or DELETE …/imagepull to upgrade without",
			pod.Namespace, pod.Name, got, want, api.ImageCondition)
	}
	return nil
}

// imageCondition returns the condition PodImageReady of a pod, or nil. One of this hub is as it should be now: the cloud
// shows it later, and without the cloud much later. One that is left from a time when this hub still pulled images does
// not count.
func (s *server) imageCondition(pod *corev1.Pod) *corev1.PodCondition {
	image := api.Condition(pod, api.ImageCondition)
	if s.ImagePulls == nil {
		if image != nil && strings.HasPrefix(image.Reason, api.ImageReasonPrefix) {
			return nil
		}
		return image
	}
	for _, c := range s.ImagePulls.Conditions(pod) {
		if image = &c; c.Status == "" {
			return nil
		}
	}
	return image
}

// checkOwner fails unless a DaemonSet or StatefulSet will replace the pod. A DaemonSet does so on
// this node, and a StatefulSet wherever the scheduler places the pod of the same name.
func checkOwner(pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return failf(http.StatusBadRequest,
			"pod %s/%s has no controlling owner: nothing would replace it; only pods of a DaemonSet or StatefulSet can be upgraded here",
			pod.Namespace, pod.Name)
	}
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil || group.Group != "apps" || owner.Kind != "DaemonSet" && owner.Kind != "StatefulSet" {
		return failf(http.StatusBadRequest,
			"pod %s/%s belongs to %s %q of %s: only pods of a DaemonSet or StatefulSet of apps/v1 can be upgraded here",
			pod.Namespace, pod.Name, owner.Kind, owner.Name, owner.APIVersion)
	}
	return nil
}

// checkPlacement fails if Kubernetes would place no pod of the new version on this node, so that
// the node would lose the app.
func checkPlacement(pod *corev1.Pod) error {
	target, ok := api.NextOf(pod)
	if !ok || target.Blocked == "" {
		return nil
	}
	return wouldNotComeBack(pod, target.Blocked)
}

func wouldNotComeBack(pod *corev1.Pod, obstacle string) error {
	return failf(http.StatusForbidden,
		"pod %s/%s would not come back: %s; it runs on as it is, for as long as that is so",
		pod.Namespace, pod.Name, obstacle)
}
