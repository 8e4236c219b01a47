package imagepull

import (
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
	"github.com/edgehub-io/edgehub/ota/api"
)

// orphaned is how long images are retained for a pod that is gone and has no successor. A
// DaemonSet creates the next pod within seconds, but its controller may be away; the next pod of a
// StatefulSet may run on another node.
const orphaned = 10 * time.Minute

// PodsChanged records the node's pods, read-only, and reconciles the jobs with them. It is called with all
// of them when they are known and after each change, one call at a time.
func (p *Puller) PodsChanged(list []*corev1.Pod) {
	pods := make(map[types.UID]*corev1.Pod, len(list))
	for _, pod := range list {
		pods[pod.UID] = pod
	}
	p.pods.set(pods)
	p.queue.Wake()
	p.reconcile()
}

// reconcileInterval is how often jobs are checked whose pods are gone.
const reconcileInterval = 5 * time.Minute

// reconcile ends jobs that are done or no longer wanted, and creates automatic jobs. It does
// nothing until the pods are known.
func (p *Puller) reconcile() {
	p.disk.Lock()
	defer p.disk.Unlock()
	pods := p.pods.all()
	if pods == nil {
		return
	}
	for _, pod := range pods { // before the former jobs end: the images may be the same
		p.startAutomatic(pod)
	}
	for _, j := range p.queue.Jobs() {
		why, how := p.evaluate(j, pods)
		if how == "" {
			continue
		}
		if err := p.end(j, how); err != nil {
			if p.isNewError(j.Name(), err) {
				p.log.Error("pre-pull that has ended cannot be forgotten; it is tried again", "pod", j.Name().String(), "err", err)
			}
			continue
		}
		p.log.Info("pre-pull has ended", "pod", j.Name().String(), "revision", j.Revision, "why", why)
	}
}

// isNewError reports whether the disk's error for this pod differs from the last one, which would
// otherwise be logged at each change of any pod. p.disk is held.
func (p *Puller) isNewError(pod types.NamespacedName, err error) bool {
	before := p.diskErrors[pod]
	p.diskErrors[pod] = err.Error()
	return before != err.Error()
}

// evaluate returns why and how j has to end, or "" if it goes on. p.disk is held.
func (p *Puller) evaluate(j *job.Job, pods map[types.UID]*corev1.Pod) (why string, how api.PullState) {
	if pod := pods[j.UID]; pod != nil {
		delete(p.missing, j.UID)
		switch t, ok, err := api.TargetOf(pod); {
		case err != nil, !j.IsNewer(pod): // its next state may have the job's target
		case !ok:
			return "the pod has no target any more", api.Superseded
		case t.Revision != j.Revision:
			return "the pod has another target, revision " + t.Revision, api.Superseded
		}
		return "", ""
	}
	for _, pod := range pods {
		if isUpgraded(pod, j) {
			return "pod " + pod.Name + " of the new revision runs", api.Superseded
		}
	}
	if !p.opts.Online() { // nobody could create its successor
		delete(p.missing, j.UID)
		return "", ""
	}
	since, known := p.missing[j.UID]
	if !known {
		p.missing[j.UID] = time.Now()
	} else if time.Since(since) >= orphaned {
		return "the pod is gone, and none of the new revision came in its place for " + orphaned.String(), api.Superseded
	}
	return "", ""
}

// isUpgraded reports whether pod is the successor of j's pod and has all its containers, whose
// images the kubelet keeps.
func isUpgraded(pod *corev1.Pod, j *job.Job) bool {
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
func isSuccessor(pod *corev1.Pod, j *job.Job) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.UID == j.Owner && (owner.Kind != "StatefulSet" || pod.Name == j.Pod)
}

// startAutomatic creates the job that a rollout asks for. p.disk is held.
func (p *Puller) startAutomatic(pod *corev1.Pod) {
	t, ok, err := api.TargetOf(pod)
	if !ok || err != nil || t.Prepull == nil || pod.DeletionTimestamp != nil || !isManaged(pod) {
		return
	}
	if have := p.queue.Job(pod.UID); have != nil && (have.Revision == t.Revision || !have.IsNewer(pod)) {
		return
	}
	name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
	if err := p.start(pod, t, true); err != nil && p.isNewError(name, err) {
		p.log.Error("pre-pull that a rollout asks for cannot be kept; it is tried again", "pod", name.String(), "err", err)
	}
}

// isManaged reports whether a DaemonSet or StatefulSet controls the pod. Otherwise, whoever may create
// pods could make the node pull any image, by an annotation.
func isManaged(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "StatefulSet") && strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/")
}

// pods are the node's pods as the watch last showed them.
type pods struct {
	mu    sync.Mutex
	byUID map[types.UID]*corev1.Pod // read-only; nil until the pods are known
	seen  int                       // how often the watch has shown them
}

func (p *pods) set(byUID map[types.UID]*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byUID, p.seen = byUID, p.seen+1
}

// all returns nil until the pods are known.
func (p *pods) all() map[types.UID]*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byUID
}

// generation counts how often the watch has shown the pods.
func (p *pods) generation() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// isEnding reports whether the pod of a job is being deleted, or gone. The watch may not have
// shown the pod yet if it has not shown any since the job was created.
func (p *pods) isEnding(j *job.Job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.byUID[j.UID]; pod != nil {
		return pod.DeletionTimestamp != nil
	}
	return p.seen > j.PodsGeneration
}
