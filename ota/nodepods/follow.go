package nodepods

import (
	"cmp"
	"context"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Event is a line of a watch.
type Event struct {
	Type   watch.EventType `json:"type"` // ADDED, MODIFIED or DELETED
	Object *corev1.Pod     `json:"object"`
}

// maxBehind is how many changes a caller of Follow may be behind.
const maxBehind = 1024

// Follow calls send with the pods that a caller wants, as ADDED, by namespace and name, once they are known, and then with
// what changes, until ctx ends, send returns false, or the caller is maxBehind changes behind: what waits for it is
// bounded. A pod that does not match any more is DELETED. Objects are the caller's own. It returns an error only if Run
// has ended, and calls ready if it has not.
func (p *Pods) Follow(ctx context.Context, wanted *Query, ready func(), send func(Event) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	f := follower{wanted: wanted, leave: cancel, events: make(chan Event, len(p.All())+maxBehind)}
	handle, err := p.informer.AddEventHandler(f)
	if err != nil {
		cancel()
		return err
	}
	defer func() { cancel(); _ = p.informer.RemoveEventHandler(handle) }() // fails only if Run has ended
	ready()
	select {
	case <-ctx.Done():
		return nil
	case <-handle.HasSyncedChecker().Done(): // events has all pods
	}
	var first []Event
	for len(f.events) > 0 {
		first = append(first, <-f.events)
	}
	slices.SortStableFunc(first, func(a, b Event) int { // what comes of one pod stays in order
		return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	for _, e := range first {
		if ctx.Err() != nil || !send(p.own(e)) {
			return nil
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-f.events:
			if ctx.Err() != nil || !send(p.own(e)) { // one before it may be missing
				return nil
			}
		}
	}
}

// own returns an event whose object is the caller's.
func (p *Pods) own(e Event) Event {
	e.Object = p.shownAs(e.Object).DeepCopy()                          // even to encode a quantity writes into it
	e.Object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} // decoding leaves it out
	return e
}

// follower is one call of Follow. The informer calls it from a goroutine of its own, with all pods first. It must not
// block: the informer would keep what is still to come without bound.
type follower struct {
	wanted *Query
	leave  func()
	events chan Event // with the informer's objects
}

// OnAdd implements cache.ResourceEventHandler.
func (f follower) OnAdd(object any, _ bool) {
	if pod, ok := object.(*corev1.Pod); ok && f.wanted.Matches(pod) {
		f.emit(watch.Added, pod)
	}
}

// OnUpdate implements cache.ResourceEventHandler. While the cloud is away a pod's status changes, and its version does
// not; after a list that follows on a watch, neither may have.
func (f follower) OnUpdate(before, after any) {
	old, _ := before.(*corev1.Pod)
	pod, ok := after.(*corev1.Pod)
	if !ok || old == nil || old.ResourceVersion == pod.ResourceVersion && reflect.DeepEqual(old, pod) {
		return
	}
	if old.UID != pod.UID {
		f.OnDelete(old)
		f.OnAdd(pod, false)
		return
	}
	switch had, has := f.wanted.Matches(old), f.wanted.Matches(pod); {
	case had && has:
		f.emit(watch.Modified, pod)
	case has:
		f.emit(watch.Added, pod)
	case had:
		f.emit(watch.Deleted, pod)
	}
}

// OnDelete implements cache.ResourceEventHandler. A pod whose deletion was missed comes as it was seen last.
func (f follower) OnDelete(object any) {
	if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	if pod, ok := object.(*corev1.Pod); ok && f.wanted.Matches(pod) {
		f.emit(watch.Deleted, pod)
	}
}

func (f follower) emit(kind watch.EventType, pod *corev1.Pod) {
	select {
	case f.events <- Event{kind, pod}:
	default:
		f.leave()
	}
}
