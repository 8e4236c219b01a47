package rollback

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/ota/api"
)

// Return is what becomes of a pod that was upgraded while the cloud was away. The zero value is a pod like any other.
type Return struct {
	// Unsettled is why the controller neither deletes the pod nor rolls it back; "" if it may.
	Unsettled string
	// Revision is what the pod runs, if it is to get that now, and Images are those that it lacks.
	Revision string
	Images   []api.TargetImage
	// Reason, one of api, and Message are why it cannot get what it runs.
	Reason, Message string
}

// AwaitsNode reports whether the pod's node has yet to report the outcome of the upgrade.
func (u Return) AwaitsNode() bool { return u.Unsettled != "" && u.Reason == "" && u.Revision == "" }

// ReturnOf returns what becomes of pod. permitted is whether its workload permits upgrades in place now.
func (r *Revisions) ReturnOf(pod *corev1.Pod, permitted bool) Return {
	c := api.Condition(pod, api.UpgradedOfflineCondition)
	report, reported, err := api.OfflineUpgradeOf(pod)
	switch {
	case !reported && (c == nil || !permitted):
		return Return{}
	case !reported && c.Status == corev1.ConditionUnknown:
		return Return{Unsettled: "it was upgraded while the cloud was away, and its node does not know yet whether the new version works"}
	case !reported && c.Status == corev1.ConditionTrue && c.Reason == api.ReasonPassed:
		return Return{Unsettled: "it was upgraded while the cloud was away, and its node has yet to report to what"}
	case !reported:
		return Return{}
	case !permitted:
		return Return{Reason: api.ReasonNotAllowed, Message: fmt.Sprintf("it was upgraded while the cloud was away, and the workload does not permit that any more: an admin can set its annotation %s to %s, or delete the pod",
			api.OfflineUpgradeAnnotation, api.OfflineUpgradeInPlace)}
	case err != nil:
		return failed(api.ReasonReportInvalid, "annotation %s is invalid: the node's hub writes it", api.UpgradedOfflineAnnotation)
	case c == nil || c.Status != corev1.ConditionTrue || api.RevisionOf(c) != report.Revision:
		return Return{Unsettled: "it was upgraded while the cloud was away, and its node has yet to report that the new version works"}
	}
	return r.follow(pod, report)
}

// follow returns what becomes of pod, which runs what its node has reported.
func (r *Revisions) follow(pod *corev1.Pod, report api.OfflineUpgrade) Return {
	own, want := r.history()[revisionOf(pod)], r.history()[report.Revision]
	runs := daemonset.Truncate(report.Revision, maxQuoted)
	switch {
	case want == nil:
		return failed(api.ReasonRevisionUnknown, "it runs controllerrevision %q, which is not in the history any more: an admin can roll out that version again, or raise revisionHistoryLimit", runs)
	case own == nil:
		return failed(api.ReasonRevisionUnknown, "its own controllerrevision %q is not in the history any more", daemonset.Truncate(revisionOf(pod), maxQuoted))
	}
	if problem := r.moreThanContainers(own, want); problem != "" {
		return failed(api.ReasonMoreThanImages, "it cannot become a pod of controllerrevision %q, which it runs: %s", runs, problem)
	}
	out := Return{Unsettled: "it was upgraded while the cloud was away, and is about to get what it runs", Revision: report.Revision}
	for _, c := range report.Images {
		if !slices.Contains(want.target.Containers, c) {
			return failed(api.ReasonImagesDiffer, "its node reports image %.200q of container %.63q, which controllerrevision %q does not have", c.Image, c.Name, runs)
		}
	}
	for i, w := range want.target.Containers {
		at := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == w.Name })
		switch {
		case at < 0:
			return failed(api.ReasonImagesDiffer, "it has no container %q, which controllerrevision %q has", w.Name, runs)
		case pod.Spec.Containers[at].Image == w.Image:
		case pod.Spec.Containers[at].Image != own.target.Containers[i].Image: // only images differ
			return failed(api.ReasonImagesDiffer, "container %q has another image than its controllerrevision: somebody has changed it", w.Name)
		case !slices.Contains(report.Images, w):
			return failed(api.ReasonImagesDiffer, "container %q has another image than in controllerrevision %q, and its node does not report that one", w.Name, runs)
		default:
			out.Images = append(out.Images, w)
		}
	}
	if own == want && len(out.Images) == 0 {
		return Return{} // it has what it runs
	}
	return out
}

func failed(reason, format string, args ...any) Return {
	message := fmt.Sprintf(format, args...)
	return Return{Unsettled: "it was upgraded while the cloud was away: " + message, Reason: reason, Message: message + "; deleting the pod makes a new one"}
}

// Question is Patch for any version of the pod, for a dry run.
func (u Return) Question(pod *corev1.Pod) []byte {
	return patchTo(u.Revision, pod, "", changes{Containers: u.Images})
}

// Patch returns the strategic merge patch that gives pod what it runs; nil if it is not to get that now. It applies to the pod as it
// is, and to no other. Like that of a rollback, it removes the label pod-template-generation.
func (u Return) Patch(pod *corev1.Pod) []byte {
	if u.Revision == "" || !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	return patchTo(u.Revision, pod, pod.ResourceVersion, changes{Containers: u.Images})
}
