package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/backoff"
	"github.com/edgehub-io/edgehub/controller/rollout"
)

// outcome is what became of a pod that was to be deleted, as far as is known from the
// apiserver's answers.
type Outcome int

const (
	// deleting pods are deleted. The watch will show it.
	Deleting Outcome = iota
	// unknown is a pod for which the answer leaves open whether it was deleted. It
	// counts as going until another answer shows that it was not.
	Unknown
	// kept pods live on as they are.
	Kept
)

// toleratedConflicts is how many conflicts in a row over a pod that serves nobody are taken for
// bad luck: such pods change often, and the watch is a moment behind.
const toleratedConflicts = 3

// expectations are the requests to delete pods of one DaemonSet, each from before it is
// sent until the watch shows that the pod goes. A stale watch can cause no second
// deletion because of them, neither of the same pod nor of one too many; and a pod that
// cannot be deleted is tried later and later. It is safe for concurrent use.
type Deletions struct {
	mu       sync.Mutex
	byUID    map[types.UID]answer // guarded by mu
	backoff  *backoff.Pods        // guarded by mu
	refusals int                  // in a row, of whichever pods; guarded by mu
}

// answer is the last one to a request to delete a pod.
type answer struct {
	outcome Outcome
	// words are those of a refusal or failure, quoted; "" for a conflict that is likely
	// to go away.
	words string
	// conflict is the resourceVersion that the pod no longer had, "" for another answer.
	conflict string
}

func NewDeletions() *Deletions {
	return &Deletions{byUID: map[types.UID]answer{}, backoff: backoff.NewPods()}
}

// Has reports whether the pod counts as deleted.
func (e *Deletions) Has(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, ok := e.byUID[uid]
	return ok && a.outcome != Kept
}

// Refusal returns what keeps the pod from being deleted, nil if nothing does.
func (e *Deletions) Refusal(uid types.UID) *rollout.Refusal {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, ok := e.byUID[uid]
	if !ok || a.outcome == Deleting {
		return nil
	}
	return &rollout.Refusal{Words: a.words, Until: e.backoff.Until(uid)}
}

// RefusalsInARow counts those since a pod was last deleted.
func (e *Deletions) RefusalsInARow() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refusals
}

// Next is when the first deletion that failed may be tried again; zero if none has.
func (e *Deletions) Next(now time.Time) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.backoff.Next(now)
}

// Expect is called before the request is sent.
func (e *Deletions) Expect(pod *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.byUID[pod.UID] = answer{outcome: Unknown, words: e.byUID[pod.UID].words}
}

// Answered records what became of the pod, and the error if it was not deleted. conflict
// means that the deletion failed only because the pod had changed since it was seen.
func (e *Deletions) Answered(pod *corev1.Pod, f Outcome, conflict bool, err error, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := answer{outcome: f}
	if f == Deleting {
		e.backoff.Succeeded(pod.UID)
		e.refusals = 0
	} else {
		e.backoff.Failed(pod.UID, now)
		if conflict {
			a.conflict = pod.ResourceVersion
		}
		if !conflict || e.backoff.Failures(pod.UID) > toleratedConflicts {
			a.words = QuoteError(err)
			e.refusals++
		}
	}
	e.byUID[pod.UID] = a
}

// Observed forgets the pods that the watch shows as terminating or not at all, and
// returns those for which the request has to be sent again now.
func (e *Deletions) Observed(pods []*corev1.Pod, now time.Time) (again []rollout.Deletion) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.byUID) == 0 {
		return nil
	}
	behind := map[types.UID]answer{}
	var left []*corev1.Pod
	for _, pod := range pods {
		a, ok := e.byUID[pod.UID]
		if !ok || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if a.conflict != "" && a.conflict != pod.ResourceVersion {
			a.words = "" // that was about the pod as it was before
		}
		behind[pod.UID] = a
		left = append(left, pod)
		if a.outcome == Unknown && e.backoff.Ready(pod.UID, now) {
			again = append(again, rollout.Deletion{Pod: pod, Reason: "the apiserver did not say whether it was deleted"})
		}
	}
	e.byUID = behind
	e.backoff.Retain(left)
	return again
}
