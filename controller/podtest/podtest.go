// Package podtest has pods for the tests of the controller's packages.
package podtest

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// Two times, an hour apart.
var (
	Before = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)
	Now    = time.Date(2026, 1, 1, 11, 0, 0, 0, time.UTC)
)

// PodAt returns a pod of the revision with this hash, with two conditions of others.
func PodAt(hash string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "default", "web-1", "pod-uid"
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: hash}
	pod.Annotations = map[string]string{"keep": "me"}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		{Type: upgrade.ImageCondition, Status: corev1.ConditionFalse, Message: upgrade.Message("new")},
	}
	return pod
}

// Terminating sets the pod's deletionTimestamp and returns it.
func Terminating(pod *corev1.Pod) *corev1.Pod {
	pod.DeletionTimestamp = &metav1.Time{Time: Now}
	return pod
}
