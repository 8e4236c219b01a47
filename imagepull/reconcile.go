package imagepull

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
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
	p.pods.set(pods)
	p.queue.Wake()
	p.review()
}

// reviewEvery is how often jobs are looked at whose pods are gone.
const reviewEvery = 5 * time.Minute

func (p *Puller) reviewNowAndThen(ctx context.Context) {
	tick := time.NewTicker(reviewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.review()
		}
	}
}

// review ends jobs that are done, or no longer wanted, and makes those that a
// rollout asks for. It does nothing until the pods are known.
func (p *Puller) review() {
	p.disk.Lock()
	defer p.disk.Unlock()
	pods := p.pods.all()
	if pods == nil {
		return
	}
	for _, pod := range pods { // first, in place of what they had: the images may be the same
		p.startUnasked(pod)
	}
	for _, j := range p.queue.Jobs() {
		why, how := p.judge(j, pods)
		if how == "" {
			continue
		}
		if err := p.end(j, how); err != nil {
			if p.isNews(j.Name(), err) {
				p.log.Error("pre-pull that has ended cannot be forgotten; it is tried again", "pod", j.Name().String(), "err", err)
			}
			continue
		}
		p.log.Info("pre-pull has ended", "pod", j.Name().String(), "revision", j.Revision, "why", why)
	}
}

// isNews reports whether a disk that refuses something said another thing of this pod
// before: it is asked at each change of any pod. p.disk is held.
func (p *Puller) isNews(pod types.NamespacedName, err error) bool {
	before := p.refused[pod]
	p.refused[pod] = err.Error()
	return before != err.Error()
}

// judge returns why and how j has to end; no how if it goes on.
func (p *Puller) judge(j *job.Job, pods map[types.UID]*corev1.Pod) (why string, how nodeapi.State) {
	if pod := pods[j.UID]; pod != nil {
		p.pods.missingSince(j.UID, false)
		switch t, ok, err := upgrade.TargetOf(pod); {
		case err != nil, !j.IsNewer(pod): // it may have the job's target yet
		case !ok:
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
	if since := p.pods.missingSince(j.UID, true); time.Since(since) >= orphaned {
		return "the pod is gone, and none of the new revision came in its place for " + orphaned.String(), nodeapi.Superseded
	}
	return "", ""
}

// isUpgraded reports whether pod is what j's pod was replaced by, and uses all the
// images: kubelet keeps those of containers that it has.
func isUpgraded(pod *corev1.Pod, j *job.Job) bool {
	if job.OwnerOf(pod) != j.Owner || j.Owner == "" || pod.Labels[appsv1.ControllerRevisionHashLabelKey] != j.Revision {
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

// startUnasked makes the job that a rollout asks for. p.disk is held.
func (p *Puller) startUnasked(pod *corev1.Pod) {
	t, ok, err := upgrade.TargetOf(pod)
	if !ok || err != nil || t.Prepull == nil || pod.DeletionTimestamp != nil || !isDaemon(pod) {
		return
	}
	if have := p.queue.Job(pod.UID); have != nil && (have.Revision == t.Revision || !have.IsNewer(pod)) {
		return
	}
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if err := p.start(pod, t, true); err != nil && p.isNews(name, err) {
		p.log.Error("pre-pull that a rollout asks for cannot be kept; it is tried again", "pod", name.String(), "err", err)
	}
}

// isDaemon reports whether a DaemonSet made the pod: whoever may make other pods
// could have any image pulled, by an annotation.
func isDaemon(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/")
}
