package events

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Reasons of Events about pods that were upgraded while the cloud was away.
const (
	reasonReturned      = "OfflineUpgradeFollowed"
	reasonNotReconciled = "OfflineUpgradeNotReconciled"
)

// Returned reports that pod, of o, was given what it runs since it was upgraded while the cloud was away.
func (r *Recorder) Returned(o workload.Object, pod *corev1.Pod) {
	revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
	r.logFor(o).Info("pod was upgraded while the cloud was away, and has the images that it runs now", "pod", pod.Name, "node", pod.Spec.NodeName, "revision", revision)
	r.events.Event(pod, corev1.EventTypeNormal, reasonReturned,
		"the pod was upgraded on its node while the cloud was away, and has the images of controllerrevision "+revision+", which it runs: nothing restarts")
}

// NotReconciled reports the pods that cannot be given what they run, once for each reason: changed are pods after a patch of their
// status, and before has them as they were.
func (r *Recorder) NotReconciled(before, changed []*corev1.Pod) {
	was := map[types.UID]string{}
	for _, pod := range before {
		if c := api.Condition(pod, api.ReconciledCondition); c != nil {
			was[pod.UID] = c.Reason
		}
	}
	for _, pod := range changed {
		c := api.Condition(pod, api.ReconciledCondition)
		if c == nil || c.Reason == was[pod.UID] {
			continue
		}
		r.log.Warn("pod was upgraded while the cloud was away, and cannot be given the images that it runs", "pod", pod.Namespace+"/"+pod.Name, "node", pod.Spec.NodeName, "reason", c.Reason, "problem", c.Message)
		r.events.Event(pod, corev1.EventTypeWarning, reasonNotReconciled, truncated("upgraded while the cloud was away: "+c.Message))
	}
}
