package derived

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/query"
)

// SettleAfter is how long after the return of the cloud, and Options.Jitter, an outage is over: reports are dropped,
// and clients get the cloud's slices in any case. kubelet needs up to 10 s to see that the cloud does not have the
// status of a pod (its status manager compares them that often), and the cloud a moment for the slice.
const SettleAfter = 15 * time.Second

// basis is what the slices of a namespace are computed from. It is read-only.
type basis struct {
	away   bool // the cloud is
	pods   nodePods
	number uint64 // grows when slices may have changed
}

// basisLocked returns the basis of a slice, with the status that kubelet has reported last, and false if slices
// are those of the cloud.
func (o *Objects) basisLocked(member string) (basis, bool) {
	s := &o.slices
	if !s.away && o.slicesSettledLocked() {
		return basis{}, false
	}
	if s.away && o.revision != s.seen {
		for k, u := range o.reports {
			if k.GroupVersionResource != podsResource || u.Revision <= s.seen {
				continue
			}
			if p, err := decode[*corev1.Pod](u.object); err == nil {
				o.setPodLocked(p)
			}
		}
		s.seen = o.revision
	}
	namespace, _ := query.SplitMember(member)
	// In the cloud's slices, pods that are unknown here may be new.
	pods := nodePods{List: s.pods[namespace], Complete: s.complete && s.away, Owners: s.owners}
	return basis{s.away, pods, max(s.changed[""], s.changed[namespace])}, true
}

// Lost must be called after each loss of the cloud, and Returned after each return.
func (o *Objects) Lost() {
	seen := o.currentRevision() // later reports are read by basisLocked
	pods, complete := o.readPods()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.slices
	if settling := !s.away && !o.slicesSettledLocked(); settling {
		keepStatus(pods, s.pods)
	} else {
		clear(s.copies)
	}
	o.learnOwnersLocked(slices.Concat(slices.Collect(maps.Values(pods))...)...)
	s.away, s.complete, s.pods, s.seen = true, complete, pods, seen
	o.bumpAllLocked()
	o.changedLocked()
}

// keepStatus keeps the status that pods had at the last return: after it, the cache may have got
// only what the cloud made of them.
func keepStatus(now, before map[string][]*corev1.Pod) {
	for namespace, pods := range now {
		for i, p := range pods {
			for _, old := range before[namespace] {
				if old.UID == p.UID {
					p = p.DeepCopy()
					p.Status = old.Status
					pods[i] = p
				}
			}
		}
	}
}

// Returned begins the time in which the cloud catches up, unless that has begun.
func (o *Objects) Returned() {
	o.lockCurrent()
	o.mu.Unlock()
}

// lockCurrent locks mu, after beginning the return of the cloud if IsUp says so: a watch may resume
// before Returned is called.
func (o *Objects) lockCurrent() {
	up := o.IsUp()
	o.mu.Lock()
	s := &o.slices
	if !up || !s.away {
		return
	}
	s.away = false
	o.bumpAllLocked()
	s.returnedAt = time.Now()
	// Only what was shown is needed from now on.
	maps.DeleteFunc(s.copies, func(_ copyKey, c *sliceCopy) bool { return c.last == nil })
}

// bumpAllLocked makes all copies be computed again.
func (o *Objects) bumpAllLocked() {
	o.slices.revision++
	o.slices.changed[""] = o.slices.revision
}

// Settling reports whether watches have to apply the node's pods to the slices that the cloud
// sends.
func (o *Objects) Settling() bool {
	o.lockCurrent()
	defer o.mu.Unlock()
	return !o.slices.away && !o.slicesSettledLocked()
}

// isAway reports whether the cloud was lost, and has not returned.
func (o *Objects) isAway() bool {
	o.lockCurrent()
	defer o.mu.Unlock()
	return o.slices.away
}

func (o *Objects) slicesSettledLocked() bool {
	return time.Since(o.slices.returnedAt) >= SettleAfter+o.Jitter
}

// maxOwners is of how many pods the owner is known. kubelet runs 110 by default.
const maxOwners = 1024

// learnOwnersLocked learns whose the node's pods are, for when they are gone.
func (o *Objects) learnOwnersLocked(pods ...*corev1.Pod) {
	next := maps.Clone(o.slices.owners)
	if next == nil || len(next)+len(pods) > maxOwners {
		next = map[types.UID]types.UID{}
	}
	for _, p := range pods {
		next[p.UID] = ownerOf(p)
	}
	o.slices.owners = next
}

// setPodLocked sets the state of one pod.
func (o *Objects) setPodLocked(p *corev1.Pod) {
	if p.Spec.NodeName != o.Node {
		return
	}
	s := &o.slices
	pods := slices.Clone(s.pods[p.Namespace])
	at := slices.IndexFunc(pods, func(old *corev1.Pod) bool { return old.Name == p.Name })
	same := false
	if at < 0 {
		pods = append(pods, slim(p))
	} else {
		same = isSamePod(pods[at], p)
		pods[at] = slim(p)
	}
	s.pods[p.Namespace] = pods
	if !same {
		s.revision++
		s.changed[p.Namespace] = s.revision
	}
}
