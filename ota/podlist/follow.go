package podlist

import (
	"context"
	"hash/maphash"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// retryPause is how long Follow waits before it lists again after a watch that has ended.
const retryPause = time.Second

// Source reads the pods of a node.
type Source interface {
	List(context.Context) (*corev1.PodList, error)
	// Watch follows them from a resource version on. It goes on while the cloud is away, and ends with its context.
	Watch(ctx context.Context, version string) (watch.Interface, error)
}

// Event is a line of a watch.
type Event struct {
	Type   watch.EventType `json:"type"` // ADDED, MODIFIED or DELETED
	Object *corev1.Pod     `json:"object"`
}

// Follow calls send with the pods that match, as ADDED, and then with what changes, until ctx ends or send returns
// false. It returns an error only if the pods cannot be listed at first; ready is called once they are, since none
// may match. A pod that does not match any more is DELETED. After a watch that has ended, the pods are listed
// again, and send gets what leads there; the object of a pod that went meanwhile has only its names and version.
//
// It keeps no pods: some 200 bytes for each that the caller has.
func (q *Query) Follow(ctx context.Context, from Source, ready func(), send func(Event) bool) error {
	list, err := from.List(ctx)
	if err != nil {
		return err
	}
	ready()
	f := follower{query: q, send: send, seed: maphash.MakeSeed(), sent: map[types.NamespacedName]state{}}
	for {
		if err == nil && (!f.replace(list) || !f.watch(ctx, from, list.ResourceVersion)) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryPause):
		}
		list, err = from.List(ctx)
	}
}

// follower is one call of Follow.
type follower struct {
	query *Query
	send  func(Event) bool
	seed  maphash.Seed
	sent  map[types.NamespacedName]state // what the caller has
}

// state is what is remembered of a pod.
type state struct {
	uid     types.UID
	version string
	sum     uint64 // of all of it: while the cloud is away, a pod changes, and its version does not
}

func (f *follower) stateOf(pod *corev1.Pod) state {
	bytes, _ := pod.Marshal() // it has no error of its own; an empty one differs from no other
	return state{pod.UID, pod.ResourceVersion, maphash.Bytes(f.seed, bytes)}
}

// replace sends what leads from the pods that the caller has to those of a list. It returns false once the
// caller is gone.
func (f *follower) replace(list *corev1.PodList) bool {
	listed := map[types.NamespacedName]bool{}
	for i := range list.Items {
		listed[nameOf(&list.Items[i])] = true
	}
	for name, had := range f.sent {
		if !listed[name] && !f.remove(had.pod(name)) {
			return false
		}
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if f.sent[nameOf(pod)] != f.stateOf(pod) && !f.update(pod) {
			return false
		}
	}
	return true
}

// watch sends what changes until the watch ends. It returns false once the caller is gone.
func (f *follower) watch(ctx context.Context, from Source, version string) bool {
	w, err := from.Watch(ctx, version)
	if err != nil {
		return true
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok { // an error: the version is too old
			return true
		}
		goesOn := true
		switch e.Type {
		case watch.Added, watch.Modified:
			goesOn = f.update(pod)
		case watch.Deleted:
			goesOn = f.remove(pod)
		}
		if !goesOn {
			return false
		}
	}
	return true
}

// update sends a pod that is there.
func (f *follower) update(pod *corev1.Pod) bool {
	name := nameOf(pod)
	had, sent := f.sent[name]
	if sent && had.uid != pod.UID {
		if !f.remove(had.pod(name)) {
			return false
		}
		sent = false
	}
	if !f.query.Matches(pod) {
		return f.remove(pod)
	}
	f.sent[name] = f.stateOf(pod)
	if sent {
		return f.emit(watch.Modified, pod)
	}
	return f.emit(watch.Added, pod)
}

// remove sends that a pod is gone, if the caller has it.
func (f *follower) remove(pod *corev1.Pod) bool {
	name := nameOf(pod)
	if _, sent := f.sent[name]; !sent {
		return true
	}
	delete(f.sent, name)
	return f.emit(watch.Deleted, pod)
}

func (f *follower) emit(kind watch.EventType, pod *corev1.Pod) bool {
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} // decoding leaves it out
	return f.send(Event{kind, pod})
}

// pod returns what is known of a pod that is gone.
func (s state) pod(name types.NamespacedName) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, UID: s.uid, ResourceVersion: s.version}}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
