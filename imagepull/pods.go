package imagepull

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/imagepull/job"
)

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
