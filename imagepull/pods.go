package imagepull

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota/nodeapi"
	"github.com/edgehub-io/edgehub/ota/upgrade"
)

// orphaned is how long images are held for a pod that is gone, and in whose place
// nothing has come: a DaemonSet makes the next pod within seconds, but its own
// controller may be away.
const orphaned = 10 * time.Minute

// see takes in what pods there are, and brings the jobs in line with them.
func (p *Puller) see(list []*corev1.Pod) {
	pods := make(map[types.UID]*corev1.Pod, len(list))
	for _, pod := range list {
		pods[pod.UID] = pod
	}
	p.mu.Lock()
	p.pods = pods
	p.wakeLocked()
	p.mu.Unlock()
	p.review()
}

// review ends jobs that are done, or no longer wanted, and makes those that a
// rollout asks for. It does nothing until the pods are known.
func (p *Puller) review() {
	p.disk.Lock()
	defer p.disk.Unlock()
	p.mu.Lock()
	pods, jobs := p.pods, p.sortedLocked()
	p.mu.Unlock()
	if pods == nil {
		return
	}
	for _, j := range jobs {
		if why, how := p.judge(j, pods); how != "" {
			p.log.Info("pre-pull has ended", "pod", j.name().String(), "revision", j.Revision, "why", why)
			if err := p.end(j, how); err != nil {
				p.log.Error("pre-pull that has ended cannot be forgotten; it is tried again", "pod", j.name().String(), "err", err)
			}
		}
	}
	for _, pod := range pods {
		p.startUnasked(pod)
	}
}

// judge returns why and how j has to end; no how if it goes on.
func (p *Puller) judge(j *job, pods map[types.UID]*corev1.Pod) (why string, how nodeapi.State) {
	if pod := pods[j.UID]; pod != nil {
		p.setGone(j.UID, false)
		switch t, ok, err := upgrade.TargetOf(pod); {
		case !ok || err != nil:
			return "the pod has no target any more", nodeapi.Superseded
		case t.Revision != j.Revision:
			return "the pod has another target, revision " + t.Revision, nodeapi.Superseded
		}
		return "", ""
	}
	for _, pod := range pods {
		if isUpgraded(pod, j) {
			return "pod " + pod.Name + " of the new revision runs", nodeapi.Superseded
		}
	}
	if since := p.setGone(j.UID, true); time.Since(since) >= orphaned {
		return "the pod is gone, and none of the new revision came in its place for " + orphaned.String(), nodeapi.Superseded
	}
	return "", ""
}

// isUpgraded reports whether pod is what j's pod was replaced by, and uses all the
// images: kubelet keeps those of containers that it has.
func isUpgraded(pod *corev1.Pod, j *job) bool {
	if ownerOf(pod) != j.Owner || j.Owner == "" || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != j.Revision {
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

// setGone notes whether a job's pod is missing, and returns since when.
func (p *Puller) setGone(uid types.UID, is bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !is {
		delete(p.gone, uid)
		return time.Time{}
	}
	if p.gone[uid].IsZero() {
		p.gone[uid] = time.Now()
	}
	return p.gone[uid]
}

// startUnasked makes the job that a rollout asks for. p.disk is held.
func (p *Puller) startUnasked(pod *corev1.Pod) {
	t, ok, err := upgrade.TargetOf(pod)
	if !ok || err != nil || t.Prepull == nil || pod.DeletionTimestamp != nil {
		return
	}
	if have := p.job(pod.UID); have != nil && have.Revision == t.Revision {
		return
	}
	if err := p.start(pod, t, true); err != nil {
		p.log.Error("pre-pull that a rollout asks for cannot be kept; it is tried again", "pod", pod.Namespace+"/"+pod.Name, "err", err)
	}
}
