package controller

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Backoff after a failure: each wait is twice as long as the one before. The shortest is
// hardly noticed, and does not fill the log while something is refused; the longest is
// how long a person who has just mended something may have to wait to see it. A pod that
// is refused again and again holds up nobody but itself, so it waits for longer than its
// DaemonSet: between its tries there is one look at the others, which does not fail and
// ends the DaemonSet's backoff.
const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = time.Minute
	MinDelay   = 2 * minBackoff
	MaxDelay   = 5 * time.Minute
)

// Pods are the pods of a DaemonSet for which a request has failed, with when it may
// be sent again: later after each failure, whatever happens to the pod meanwhile. It is
// not safe for concurrent use.
type Pods struct {
	limiter workqueue.TypedRateLimiter[types.UID]
	due     map[types.UID]time.Time
}

func NewPods() *Pods {
	return &Pods{
		limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](MinDelay, MaxDelay),
		due:     map[types.UID]time.Time{},
	}
}

func (r *Pods) Failed(uid types.UID, now time.Time) { r.due[uid] = now.Add(r.limiter.When(uid)) }

func (r *Pods) Succeeded(uid types.UID) {
	r.limiter.Forget(uid)
	delete(r.due, uid)
}

// Failures is how many there have been in a row.
func (r *Pods) Failures(uid types.UID) int { return r.limiter.NumRequeues(uid) }

// Ready reports whether a request for the pod may be sent now.
func (r *Pods) Ready(uid types.UID, now time.Time) bool { return !now.Before(r.due[uid]) }

// Until is when a request for the pod may be sent again; zero if none has failed.
func (r *Pods) Until(uid types.UID) time.Time { return r.due[uid] }

// Next is when the first of the pods that have to wait may be tried again; zero if none
// has to.
func (r *Pods) Next(now time.Time) (first time.Time) {
	for _, due := range r.due {
		if due.After(now) && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	return first
}

// Retain forgets every pod but these.
func (r *Pods) Retain(pods []*corev1.Pod) {
	if len(r.due) == 0 {
		return
	}
	left := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		left[pod.UID] = true
	}
	for uid := range r.due {
		if !left[uid] {
			r.Succeeded(uid)
		}
	}
}

// Waiting reports whether any pod's request has failed since it last succeeded.
func (r *Pods) Waiting() bool { return len(r.due) > 0 }
