package events

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/podclient"
	"github.com/edgehub-io/edgehub/controller/workload"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Reasons of Events about rollbacks by owners. The last one is of a workload, the others of pods.
const (
	reasonRolledBack      = "RolledBack"
	reasonRollbackRefused = "RollbackRefused"
	reasonRollbackFailed  = "RollbackFailed"
)

// RolledBack reports the pods that got the revision that their owners want, and those that could not be
// patched. Conflicts do not count. waiting is as for Marked.
func (r *Recorder) RolledBack(o workload.Object, last *Reported, done podclient.PatchResult, waiting bool) {
	for _, pod := range done.Changed {
		revision := pod.Labels[appsv1.ControllerRevisionHashLabelKey]
		r.logFor(o).Info("pod is rolled back, as the owner of its node wants", "pod", pod.Name, "node", pod.Spec.NodeName, "revision", revision)
		r.events.Event(pod, corev1.EventTypeNormal, reasonRolledBack,
			"the owner of the node went back to controllerrevision "+revision+": the pod has its images now, and its containers restart")
	}
	failure := ""
	if done.Failed > 0 {
		failure = "roll back: " + done.Err().Error() + "; it is tried again"
	}
	if failure == "" && waiting {
		return
	}
	if failure != "" && failure != last.notRolledBack {
		r.logFor(o).Warn("pods could not be rolled back", "problem", failure)
		r.warning(o, reasonRollbackFailed, failure)
	}
	last.notRolledBack = failure
}

// Rollbacks reports the pods whose owners' wishes have been refused: changed are pods after a patch of their
// status, and before has them as they were. A rollback that has ended is no refusal.
func (r *Recorder) Rollbacks(before, changed []*corev1.Pod) {
	was := map[types.UID]corev1.PodCondition{}
	for _, pod := range before {
		if c := api.Condition(pod, api.RolledBackCondition); c != nil {
			was[pod.UID] = *c
		}
	}
	for _, pod := range changed {
		c, old := api.Condition(pod, api.RolledBackCondition), was[pod.UID]
		if c == nil || c.Status != corev1.ConditionFalse || c.Reason == old.Reason || old.Status == corev1.ConditionTrue {
			continue
		}
		r.log.Warn("rollback refused", "pod", pod.Namespace+"/"+pod.Name, "node", pod.Spec.NodeName, "problem", c.Message)
		r.events.Event(pod, corev1.EventTypeWarning, reasonRollbackRefused, truncated(c.Message))
	}
}
