// Package backoff decides when to try again: a workload that could not be reconciled, a
// pod whose patch or deletion failed, and a rollout step while pods and nodes keep
// changing. It sends no request and starts no timer; the caller asks it for a time.
package backoff

import (
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Backoff after a failure: each wait is twice as long as the one before. The shortest is
// hardly noticed, and does not fill the log while something is refused; the longest is
// how long a person who has just fixed something may have to wait to see the result. A pod
// that is refused again and again delays only itself, so it waits longer than its
// workload: between its tries, a reconcile of the other pods succeeds and ends the
// workload's backoff.
const (
	minWorkloadDelay = 100 * time.Millisecond
	maxWorkloadDelay = time.Minute
	// MinDelay and MaxDelay bound the wait of a pod.
	MinDelay = 2 * minWorkloadDelay
	MaxDelay = 5 * time.Minute
	// MinRefusal and MaxRefusal bound the time for which a refusal of admission is taken to last.
	MinRefusal = 30 * time.Second
	MaxRefusal = 10 * time.Minute
)

// Retry determines when to try again what has failed. The zero value has not failed. It is not
// safe for concurrent use.
type Retry struct {
	Failures int       // in a row
	Until    time.Time // when it may be tried again; zero without a failure
	delays   wait.Backoff
}

// WorkloadFailed records that a workload could not be reconciled, and returns its wait.
func (r *Retry) WorkloadFailed(now time.Time) time.Duration {
	return r.failed(now, minWorkloadDelay, maxWorkloadDelay)
}

// Refused records that admission would refuse the workload's next pod.
func (r *Retry) Refused(now time.Time) { r.failed(now, MinRefusal, MaxRefusal) }

func (r *Retry) failed(now time.Time, shortest, longest time.Duration) time.Duration {
	if r.Failures == 0 {
		r.delays = wait.Backoff{Duration: shortest, Factor: 2, Cap: longest, Steps: math.MaxInt}
	}
	r.Failures++
	delay := r.delays.Step()
	r.Until = now.Add(delay)
	return delay
}

// Pods are the pods of a workload whose last request failed, by UID. Each waits longer
// after each failure, whatever happens to the pod meanwhile; delete one that succeeded.
// Pods is not safe for concurrent use.
type Pods map[types.UID]Retry

// Failed records a failed request for the pod.
func (p Pods) Failed(uid types.UID, now time.Time) {
	r := p[uid]
	r.failed(now, MinDelay, MaxDelay)
	p[uid] = r
}

// Ready reports whether a request for the pod may be sent now.
func (p Pods) Ready(uid types.UID, now time.Time) bool { return !now.Before(p[uid].Until) }

// Next is when the first of the pods that have to wait may be tried again; zero if none
// has to.
func (p Pods) Next(now time.Time) (first time.Time) {
	for _, r := range p {
		if r.Until.After(now) && (first.IsZero() || r.Until.Before(first)) {
			first = r.Until
		}
	}
	return first
}

// Retain forgets every pod but these.
func (p Pods) Retain(pods []*corev1.Pod) {
	if len(p) == 0 {
		return
	}
	kept := Pods{}
	for _, pod := range pods {
		if r, ok := p[pod.UID]; ok {
			kept[pod.UID] = r
		}
	}
	clear(p)
	maps.Copy(p, kept)
}
