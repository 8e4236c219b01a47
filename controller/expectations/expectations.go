// Package expectations remembers the deletions of pods that have been sent, until the
// watch shows them, as the controllers of Kubernetes do. Without it, a reconcile that runs
// before the watch catches up would delete the same pod again, or one too many.
package expectations

import (
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/daemonset"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// Outcome is what became of a pod that was to be deleted, as far as is known from the
// apiserver's answers.
type Outcome int

const (
	// Deleting pods are deleted. The watch will show it.
	Deleting Outcome = iota
	// Unknown pods may have been deleted: the answer leaves it open. They count as
	// deleted until another answer shows that they were not.
	Unknown
	// Kept pods live on as they are.
	Kept
)

// toleratedConflicts is how many conflicts in a row over a pod that is not Ready are
// expected: such pods change often, and the watch is a moment behind.
const toleratedConflicts = 3

// Deletions are the requests to delete pods of one DaemonSet, each from before it is
// sent until the watch shows that the pod terminates. They keep a stale watch from causing
// a second deletion of a pod, or one deletion too many; and a pod that cannot be deleted is
// tried less and less often. Deletions is safe for concurrent use.
type Deletions struct {
	mu       sync.Mutex
	byUID    map[types.UID]answer // guarded by mu
	backoff  backoff.Pods         // guarded by mu
	refusals int                  // in a row, of any pods; guarded by mu
}

// answer is the last answer to a request to delete a pod.
type answer struct {
	outcome Outcome
	// message of the refusal or failure, quoted; "" for a conflict that is likely to go away.
	message string
	// conflict is the resourceVersion that the pod no longer had, "" for another answer.
	conflict string
}

// NewDeletions returns an empty one.
func NewDeletions() *Deletions {
	return &Deletions{byUID: map[types.UID]answer{}, backoff: backoff.Pods{}}
}

// Has reports whether the pod counts as deleted.
func (d *Deletions) Has(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.byUID[uid]
	return ok && a.outcome != Kept
}

// Refusal returns why the pod was not deleted, nil if nothing prevented it.
func (d *Deletions) Refusal(uid types.UID) *rollout.Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.byUID[uid]
	if !ok || a.outcome == Deleting {
		return nil
	}
	return &rollout.Refusal{Message: a.message, Until: d.backoff[uid].Until}
}

// RefusalsInARow counts those since a pod was last deleted.
func (d *Deletions) RefusalsInARow() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusals
}

// Next is when the first deletion that failed may be tried again; zero if none has.
func (d *Deletions) Next(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.backoff.Next(now)
}

// Expect is called before the request is sent.
func (d *Deletions) Expect(pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byUID[pod.UID] = answer{outcome: Unknown, message: d.byUID[pod.UID].message}
}

// Answered records what became of the pod, and the error if it was not deleted. conflict
// means that the deletion failed only because the pod had changed since it was seen.
func (d *Deletions) Answered(pod *corev1.Pod, f Outcome, conflict bool, err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := answer{outcome: f}
	if f == Deleting {
		delete(d.backoff, pod.UID)
		d.refusals = 0
	} else {
		d.backoff.Failed(pod.UID, now)
		if conflict {
			a.conflict = pod.ResourceVersion
		}
		if !conflict || d.backoff[pod.UID].Failures > toleratedConflicts {
			a.message = QuoteError(err)
			d.refusals++
		}
	}
	d.byUID[pod.UID] = a
}

// Observed forgets the pods that the watch shows as terminating or not at all, and
// returns those for which the request has to be sent again now. keep, which may be nil, reports the
// pods that are to stay by now. One of which the answer was Unknown is forgotten, too: its node has
// changed it since, so a request that is still under way, with the resourceVersion of before, fails.
func (d *Deletions) Observed(pods []*corev1.Pod, keep func(*corev1.Pod) bool, now time.Time) (again []rollout.Deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byUID) == 0 {
		return nil
	}
	behind := map[types.UID]answer{}
	var left []*corev1.Pod
	for _, pod := range pods {
		a, ok := d.byUID[pod.UID]
		if !ok || !pod.DeletionTimestamp.IsZero() || a.outcome == Unknown && keep != nil && keep(pod) {
			continue
		}
		if a.conflict != "" && a.conflict != pod.ResourceVersion {
			a.message = "" // that was about the pod as it was before
		}
		behind[pod.UID] = a
		left = append(left, pod)
		if a.outcome == Unknown && d.backoff.Ready(pod.UID, now) {
			again = append(again, rollout.Deletion{Pod: pod, Reason: "the apiserver did not say whether it was deleted"})
		}
	}
	d.byUID = behind
	d.backoff.Retain(left)
	return again
}

// maxQuoted is how much of an error is repeated in conditions and Events: enough for the
// name of a webhook or policy and its reason.
const maxQuoted = 200

// QuoteError quotes an error of the apiserver, truncated: its text may come from any
// admission webhook or policy, and be of any length.
func QuoteError(err error) string {
	return strconv.Quote(daemonset.Truncate(err.Error(), maxQuoted))
}
