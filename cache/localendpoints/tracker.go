package localendpoints

import (
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/overlay"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// SettleAfter is how long after the return of the cloud, and Options.Jitter, clients get the
// cloud's slices in any case. kubelet needs up to 10 s to see that the cloud does not have the
// status of a pod (its status manager compares them that often), and the cloud a moment for the
// slice. While a status that the overlay shows hides the difference from kubelet, no time passes.
const SettleAfter = 15 * time.Second

// pendingEvery is how often, at most, it is checked what the cloud lacks.
const pendingEvery = time.Second

// recentFor is how long after an outage a client may still have slices that it has read in it.
const recentFor = 5 * time.Minute

// Tracker computes EndpointSlices from the node's pods while the cloud is away, and for a while
// after its return. It is safe for concurrent use.
type Tracker struct {
	Options

	mu         sync.Mutex
	state      *state // nil before the first outage
	seen       uint64 // revision of the overlay that state has
	revision   uint64 // of the last change of a copy
	copies     map[copyKey]*sliceCopy
	owners     map[types.UID]types.UID // see Pods; replaced, never changed
	returnedAt time.Time
	unsettled  time.Time // when the cloud was last known to lack a pod's status
	checked    time.Time // when that was last checked

	// loadedAt and loaded are when the views were read from disk, and their versions: see Loaded.
	loadedAt time.Time
	loaded   map[*view.View]string
}

// Options are options of a tracker. All are required but APIServer.
type Options struct {
	Views   *view.Views
	Overlay *overlay.Overlay
	Node    string
	// APIServer are the addresses at which pods reach the hub, at most one of each family.
	// Without any, the slice of the apiservers stays as it is.
	APIServer []netip.AddrPort
	IsUp      func() bool   // whether the node can reach an apiserver
	Jitter    time.Duration // over which watches resume after an outage
	Now       func() time.Time
	Log       *slog.Logger
}

// New returns a tracker for a cloud that can be reached.
func New(o Options) *Tracker {
	return &Tracker{Options: o, copies: map[copyKey]*sliceCopy{}}
}

// Loaded must be called when the views have been read from disk, and before they are used. Clients
// that watch may have slices of an outage that the last process showed them, and may not have
// seen its end.
func (t *Tracker) Loaded() {
	loaded := map[*view.View]string{}
	for _, v := range t.Views.All() {
		if Shows(v.Key.Group, v.Key.Version, v.Key.Resource) {
			loaded[v] = v.Position() // "" proves nothing, and is lower than any version
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loadedAt, t.loaded = t.Now(), loaded
}

// Shows reports whether a tracker computes objects of a resource.
func Shows(group, version, resource string) bool {
	return group == discoveryv1.GroupName && version == discoveryv1.SchemeGroupVersion.Version && resource == "endpointslices"
}

// state is what slices are computed from. It is read-only: a change makes another one.
type state struct {
	away     bool                     // the cloud is
	complete bool                     // there are no other pods
	pods     map[string][]*corev1.Pod // by namespace
	owners   map[types.UID]types.UID  // see Pods
	// changed has for each namespace a number that grows when its slices may have changed.
	changed map[string]uint64
}

// inNamespace returns the pods of a namespace.
func (s *state) inNamespace(namespace string) Pods {
	// In the cloud's slices, pods that are unknown here may be new.
	return Pods{List: s.pods[namespace], Complete: s.complete && s.away, Owners: s.owners}
}

// Lost must be called after each loss of the cloud, and Returned after each return.
func (t *Tracker) Lost() {
	seen := t.Overlay.Revision() // later updates are read by current
	pods, complete := t.readPods()
	t.mu.Lock()
	settling := t.state != nil && !t.state.away && !t.settledLocked()
	if !settling {
		clear(t.copies)
	}
	t.learnOwnersLocked(slices.Concat(slices.Collect(maps.Values(pods))...)...)
	next := &state{away: true, complete: complete, pods: pods, owners: t.owners, changed: map[string]uint64{}}
	if t.state != nil {
		if settling {
			keepStatus(next.pods, t.state.pods)
		}
		maps.Copy(next.changed, t.state.changed)
	}
	t.state, t.seen = next, seen
	t.bumpAllLocked()
	t.mu.Unlock()
	t.Overlay.Touch()
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
func (t *Tracker) Returned() {
	t.lock()
	t.mu.Unlock()
}

// lock locks mu. A watch may resume before Returned is called: the state must not be that of the
// outage then.
func (t *Tracker) lock() {
	up := t.IsUp()
	t.mu.Lock()
	if up && t.state != nil && t.state.away {
		t.returnedLocked()
	}
}

func (t *Tracker) returnedLocked() {
	next := *t.state
	next.away, next.changed = false, maps.Clone(next.changed)
	t.state = &next
	t.bumpAllLocked()
	t.returnedAt = t.Now()
	t.unsettled, t.checked = t.returnedAt, t.returnedAt
	// Only what was shown is needed from now on.
	maps.DeleteFunc(t.copies, func(_ copyKey, c *sliceCopy) bool { return c.last == nil })
}

// bumpAllLocked makes all copies be computed again.
func (t *Tracker) bumpAllLocked() {
	t.revision++
	t.state.changed[""] = t.revision
}

// Settling reports whether watches have to apply the node's pods to the slices that the cloud
// sends.
func (t *Tracker) Settling() bool {
	pending := t.pending()
	t.lock()
	defer t.mu.Unlock()
	if t.state == nil || t.state.away {
		return false
	}
	if pending {
		t.unsettled = t.Now()
	}
	return !t.settledLocked()
}

// IsAway reports whether the cloud was lost, and has not returned.
func (t *Tracker) IsAway() bool {
	t.lock()
	defer t.mu.Unlock()
	return t.state != nil && t.state.away
}

func (t *Tracker) settledLocked() bool { return t.Now().Sub(t.unsettled) >= SettleAfter+t.Jitter }

// Reported must be called with a pod, bare, whose status an apiserver has accepted from kubelet:
// that of each pod at least once, before the cloud deletes it.
func (t *Tracker) Reported(e wire.Encoding, bare []byte) {
	p := decodePod(e, bare)
	if p == nil {
		return
	}
	t.lock()
	defer t.mu.Unlock()
	t.learnOwnersLocked(p)
	if t.state == nil || t.state.away || t.settledLocked() {
		return
	}
	t.setLocked(p)
}

// maxOwners is of how many pods the owner is known. kubelet runs 110 by default.
const maxOwners = 1024

// learnOwnersLocked learns whose the node's pods are, for when they are gone.
func (t *Tracker) learnOwnersLocked(pods ...*corev1.Pod) {
	next := maps.Clone(t.owners)
	if next == nil || len(next)+len(pods) > maxOwners {
		next = map[types.UID]types.UID{}
	}
	for _, p := range pods {
		next[p.UID] = ownerOf(p)
	}
	t.owners = next
}

// current returns the state, with the status that kubelet has reported last; nil if slices are
// those of the cloud.
func (t *Tracker) current() *state {
	t.lock()
	defer t.mu.Unlock()
	if t.state == nil || !t.state.away && t.settledLocked() {
		return nil
	}
	if now := t.Overlay.Revision(); t.state.away && now != t.seen {
		for _, u := range t.Overlay.Updates(corev1.GroupName, "v1", "pods") {
			if u.Revision <= t.seen {
				continue
			}
			if p := decodePod(u.Encoding, u.Bare); p != nil {
				t.setLocked(p)
			}
		}
		t.seen = now
	}
	return t.state
}

// setLocked sets the state of one pod.
func (t *Tracker) setLocked(p *corev1.Pod) {
	if p.Spec.NodeName != t.Node {
		return
	}
	pods := slices.Clone(t.state.pods[p.Namespace])
	at := slices.IndexFunc(pods, func(old *corev1.Pod) bool { return old.Name == p.Name })
	same := false
	if at < 0 {
		pods = append(pods, slim(p))
	} else {
		same = isSamePod(pods[at], p)
		pods[at] = slim(p)
	}
	next := *t.state
	next.pods, next.changed = maps.Clone(next.pods), maps.Clone(next.changed)
	next.pods[p.Namespace], next.owners = pods, t.owners
	if !same {
		t.revision++
		next.changed[p.Namespace] = t.revision
	}
	t.state = &next
}

var errNotPod = errors.New("it is no Pod")
