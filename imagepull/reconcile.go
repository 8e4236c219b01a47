package imagepull

import (
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/api"
)

const (
	// orphaned is how long images are retained for a pod that is gone and has no successor. A
	// DaemonSet creates the next pod within seconds, but its controller may be away; the next pod of a
	// StatefulSet may run on another node.
	orphaned = 10 * time.Minute
	// reconcileInterval is how often jobs are checked whose pods are gone.
	reconcileInterval = 5 * time.Minute
)

// PodsChanged records the node's pods, read-only, and reconciles the jobs with them. It is called with all
// of them when they are known and after each change, one call at a time.
func (p *Puller) PodsChanged(list []*corev1.Pod) {
	p.queue.setPods(list)
	p.reconcile()
}

// reconcile ends jobs that are done or no longer wanted, and creates automatic jobs. It does
// nothing until the pods are known.
func (p *Puller) reconcile() {
	p.disk.Lock()
	defer p.disk.Unlock()
	pods := p.queue.shown()
	if pods == nil {
		return
	}
	var errs []error
	for _, pod := range pods { // before the former jobs end: the images may be the same
		errs = append(errs, p.startAutomatic(pod))
	}
	for _, j := range p.queue.all() {
		if why := p.whyEnded(j, pods); why != "" {
			errs = append(errs, p.end(j, why))
		}
	}
	err := errors.Join(errs...)
	if err != nil && !p.diskFailing { // pods change often
		p.Logger.Error("pre-pulls that a rollout asks for cannot be kept, or those that have ended cannot be forgotten; it is tried again", "err", err)
	}
	p.diskFailing = err != nil
}

// end ends a job that is done or no longer wanted. p.disk is held.
func (p *Puller) end(j *job, why string) error {
	if err := p.files.Delete(j.key()); err != nil {
		return fmt.Errorf("forget the pre-pull of pod %s: %w", j.name(), err)
	}
	p.queue.remove(j)
	p.Logger.Info("pre-pull has ended", "pod", j.name().String(), "revision", j.Revision, "why", why)
	return nil
}

// whyEnded returns why j ends, or "" if it goes on. p.disk is held.
func (p *Puller) whyEnded(j *job, pods map[types.UID]*corev1.Pod) string {
	since := j.missing
	j.missing = time.Time{}
	if pod := pods[j.UID]; pod != nil {
		switch t, ok, err := api.TargetOf(pod); {
		case err != nil, !j.isNewer(pod): // its next state may have the job's target
		case !ok:
			return "the pod has no target any more"
		case t.Revision != j.Revision:
			return "the pod has another target, revision " + t.Revision
		}
		return ""
	}
	for _, pod := range pods {
		if isUpgraded(pod, j) {
			return "pod " + pod.Name + " of the new revision runs"
		}
	}
	switch {
	case !p.Online(): // nobody could create its successor
	case since.IsZero():
		j.missing = time.Now()
	case time.Since(since) >= orphaned:
		return "the pod is gone, and none of the new revision came in its place for " + orphaned.String()
	default:
		j.missing = since
	}
	return ""
}

// isUpgraded reports whether pod is the successor of j's pod and has all its containers, whose
// images the kubelet keeps.
func isUpgraded(pod *corev1.Pod, j *job) bool {
	if j.Owner == "" || !isSuccessor(pod, j) || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != j.Revision {
		return false
	}
	statuses := pod.Status.ContainerStatuses
	for i := range statuses {
		if statuses[i].ContainerID == "" {
			return false
		}
	}
	return len(statuses) > 0
}

// isSuccessor reports whether pod is of j's owner, and has the name that the next pod will have: with
// a StatefulSet, that of j's pod. Another of its pods on this node is none.
func isSuccessor(pod *corev1.Pod, j *job) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.UID == j.Owner && (owner.Kind != "StatefulSet" || pod.Name == j.Pod)
}

// startAutomatic creates the job that a rollout asks for, if pod has none. p.disk is held.
func (p *Puller) startAutomatic(pod *corev1.Pod) error {
	t, ok := automaticTarget(pod)
	if !ok {
		return nil
	}
	if have := p.queue.job(pod.UID); have != nil && (have.Revision == t.Revision || !have.isNewer(pod)) {
		return nil
	}
	return p.start(newJob(pod, t, true))
}

// automaticTarget returns the target of a pod if a rollout asks for its images. Of a pod that neither a DaemonSet nor a
// StatefulSet controls that does not count: whoever may create pods could make the node pull any image, by an annotation.
func automaticTarget(pod *corev1.Pod) (api.Target, bool) {
	t, ok, err := api.TargetOf(pod)
	owner := metav1.GetControllerOf(pod)
	return t, ok && err == nil && t.Prepull != nil && pod.DeletionTimestamp == nil &&
		owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "StatefulSet") && strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/")
}
