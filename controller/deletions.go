package controller

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/controller/rollout"
)

// fate is what became of a pod that was to be deleted, as far as is known from the
// apiserver's answers.
type fate int

const (
	// going pods are deleted. The watch will show it.
	going fate = iota
	// unsure is a pod for which the answer leaves open whether it was deleted. It
	// counts as going until another answer shows that it was not.
	unsure
	// kept pods live on as they are.
	kept
)

// forgiven is how many conflicts in a row over a pod that serves nobody are taken for
// bad luck: such pods change often, and the watch is a moment behind.
const forgiven = 3

// deletions are the requests to delete pods of one DaemonSet, each from before it is
// sent until the watch shows that the pod goes. A stale watch can cause no second
// deletion because of them, neither of the same pod nor of one too many; and a pod that
// cannot be deleted is tried later and later. It is safe for concurrent use.
type deletions struct {
	mu       sync.Mutex
	byUID    map[types.UID]answer // guarded by mu
	retries  *retries             // guarded by mu
	refusals int                  // in a row, of whichever pods; guarded by mu
}

// answer is the last one to a request to delete a pod.
type answer struct {
	fate fate
	// words are those of a refusal or failure, quoted; "" for a conflict that is likely
	// to go away.
	words string
	// conflict is the resourceVersion that the pod no longer had, "" for another answer.
	conflict string
}

func newDeletions() *deletions {
	return &deletions{byUID: map[types.UID]answer{}, retries: newRetries()}
}

// has reports whether the pod counts as deleted.
func (d *deletions) has(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.byUID[uid]
	return ok && a.fate != kept
}

// refusal returns what keeps the pod from being deleted, nil if nothing does.
func (d *deletions) refusal(uid types.UID) *rollout.Refusal {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.byUID[uid]
	if !ok || a.fate == going {
		return nil
	}
	return &rollout.Refusal{Words: a.words, Until: d.retries.due[uid]}
}

// refusalsInARow counts those since a pod was last deleted.
func (d *deletions) refusalsInARow() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.refusals
}

// next is when the first deletion that failed may be tried again; zero if none has.
func (d *deletions) next(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.retries.next(now)
}

// expect is called before the request is sent.
func (d *deletions) expect(pod *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.byUID[pod.UID] = answer{fate: unsure, words: d.byUID[pod.UID].words}
}

// answered records what became of the pod, and the error if it was not deleted. conflict
// means that the deletion failed only because the pod had changed since it was seen.
func (d *deletions) answered(pod *corev1.Pod, f fate, conflict bool, err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := answer{fate: f}
	if f == going {
		d.retries.succeeded(pod.UID)
		d.refusals = 0
	} else {
		d.retries.failed(pod.UID, now)
		if conflict {
			a.conflict = pod.ResourceVersion
		}
		if !conflict || d.retries.failures(pod.UID) > forgiven {
			a.words = said(err)
			d.refusals++
		}
	}
	d.byUID[pod.UID] = a
}

// caughtUp forgets the pods that the watch shows as terminating or not at all, and
// returns those for which the request has to be sent again now.
func (d *deletions) caughtUp(pods []*corev1.Pod, now time.Time) (again []rollout.Deletion) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.byUID) == 0 {
		return nil
	}
	behind := map[types.UID]answer{}
	var left []*corev1.Pod
	for _, pod := range pods {
		a, ok := d.byUID[pod.UID]
		if !ok || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if a.conflict != "" && a.conflict != pod.ResourceVersion {
			a.words = "" // that was about the pod as it was before
		}
		behind[pod.UID] = a
		left = append(left, pod)
		if a.fate == unsure && d.retries.may(pod.UID, now) {
			again = append(again, rollout.Deletion{Pod: pod, Reason: "the apiserver did not say whether it was deleted"})
		}
	}
	d.byUID = behind
	d.retries.keep(left)
	return again
}
