package backoff

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Pods are the pods of a DaemonSet for which a request has failed, with when it may
// be sent again: later after each failure, whatever happens to the pod meanwhile. It is
// not safe for concurrent use.
type Pods struct {
	limiter workqueue.TypedRateLimiter[types.UID]
	due     map[types.UID]time.Time
}

// NewPods returns one without failures.
func NewPods() *Pods {
	return &Pods{
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](MinDelay, MaxDelay),
		due:     map[types.UID]time.Time{},
	}
}

// Failed records a failure: the pod has to wait, longer than the last time.
func (p *Pods) Failed(uid types.UID, now time.Time) { p.due[uid] = now.Add(p.limiter.When(uid)) }

// Succeeded forgets the failures of the pod.
func (p *Pods) Succeeded(uid types.UID) {
	p.limiter.Forget(uid)
	delete(p.due, uid)
}

// Failures is how many there have been in a row.
func (p *Pods) Failures(uid types.UID) int { return p.limiter.NumRequeues(uid) }

// Ready reports whether a request for the pod may be sent now.
func (p *Pods) Ready(uid types.UID, now time.Time) bool { return !now.Before(p.due[uid]) }

// Until is when a request for the pod may be sent again; zero if none has failed.
func (p *Pods) Until(uid types.UID) time.Time { return p.due[uid] }

// Next is when the first of the pods that have to wait may be tried again; zero if none
// has to.
func (p *Pods) Next(now time.Time) (first time.Time) {
	for _, due := range p.due {
		if due.After(now) && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	return first
}

// Retain forgets every pod but these.
func (p *Pods) Retain(pods []*corev1.Pod) {
	if len(p.due) == 0 {
		return
	}
	left := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		left[pod.UID] = true
	}
	for uid := range p.due {
		if !left[uid] {
			p.Succeeded(uid)
		}
	}
}

// Waiting reports whether any pod's request has failed since it last succeeded.
func (p *Pods) Waiting() bool { return len(p.due) > 0 }
