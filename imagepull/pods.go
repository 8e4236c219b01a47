package imagepull

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
)

// pods are those of this node, as they were seen last.
type pods struct {
	online func() bool

	mu      sync.Mutex
	byUID   map[types.UID]*corev1.Pod // nobody changes it; nil until they are known
	seen    int                       // how often they were
	missing map[types.UID]time.Time   // since when the pods of jobs are
}

func (p *pods) set(byUID map[types.UID]*corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byUID, p.seen = byUID, p.seen+1
}

// all is nil until the pods are known.
func (p *pods) all() map[types.UID]*corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byUID
}

// generation counts how often the pods were seen.
func (p *pods) generation() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// isEnding reports whether the pod of a job is being deleted, or gone. What was
// seen of the pods before the job was made may lack a pod that is there.
func (p *pods) isEnding(j *job.Job) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod := p.byUID[j.UID]; pod != nil {
		return pod.DeletionTimestamp != nil
	}
	return p.seen > j.PodsGeneration
}

// missingSince notes whether a job's pod is missing, and returns since when, as far as the
// cloud could have put another in its place.
func (p *pods) missingSince(uid types.UID, is bool) time.Time {
	online := p.online()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !is || !online {
		delete(p.missing, uid)
		return time.Now()
	}
	if p.missing[uid].IsZero() {
		p.missing[uid] = time.Now()
	}
	return p.missing[uid]
}

// forget has nothing missing of a job that has ended.
func (p *pods) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.missing, uid)
}
