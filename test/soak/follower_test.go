package soak_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// query is what a follower follows.
type query struct {
	resource string
	object   runtime.Object
	labels   string // selector
	fields   string // selector
}

// named is the query of one ConfigMap.
func named(name string) query {
	return query{resource: "configmaps", object: &corev1.ConfigMap{}, fields: "metadata.name=" + name}
}

// follower keeps up with a query by a reflector of client-go's, whose store it is. It
// complains about what a reflector would not mind.
type follower struct {
	w     *world
	owner string
	query query

	mu      sync.Mutex
	items   map[string]string // versions by name
	at      uint64            // version of the list, or of the last event
	events  int
	lists   int
	watches int
	expired int // watches that ended, or were refused, with 410
}

// follow starts a follower, which ends with the test.
func (w *world) follow(c *client, q query) *follower {
	f := &follower{w: w, owner: c.name, query: q, items: map[string]string{}}
	lw := cache.NewFilteredListWatchFromClient(c.kube.CoreV1().RESTClient(), q.resource, namespace, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = q.labels, q.fields
	})
	reflector := cache.NewReflectorWithOptions(listWatch{lw, f}, q.object, f, cache.ReflectorOptions{Name: c.name + " " + q.resource})
	ctx, cancel := context.WithCancel(w.t.Context())
	var done sync.WaitGroup
	done.Go(func() { reflector.RunWithContext(ctx) })
	w.t.Cleanup(func() { cancel(); done.Wait() })
	return f
}

// listWatch notes how watches are refused and end.
type listWatch struct {
	*cache.ListWatch
	f *follower
}

func (l listWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	l.f.mu.Lock()
	l.f.watches++
	l.f.mu.Unlock()
	w, err := l.ListWatch.WatchWithContext(ctx, o)
	if err != nil {
		l.f.failed(err)
		return nil, err
	}
	own := &ownWatch{Interface: w}
	return watch.Filter(own, func(e watch.Event) (watch.Event, bool) {
		if e.Type == watch.Error && ctx.Err() == nil && !own.stopped.Load() {
			l.f.failed(apierrors.FromObject(e.Object))
		}
		return e, true
	}), nil
}

// ownWatch notes that its client has stopped it: client-go may report that as an error, since
// it reads the body that it has closed.
type ownWatch struct {
	watch.Interface
	stopped atomic.Bool
}

func (w *ownWatch) Stop() {
	w.stopped.Store(true)
	w.Interface.Stop()
}

// failed notes that a watch has failed, which it may with 410, and then its client lists
// again: one that ends by itself during a cut may be taken up from a version that the hub
// has no events after. See rare.
func (f *follower) failed(err error) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		f.complain("a watch that ended with an error", "%v", err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expired++
}

func (f *follower) complain(kind, format string, args ...any) {
	f.w.problems.add(kind, "%s: %s %s%s: %s", f.owner, f.query.resource, f.query.fields, f.query.labels, fmt.Sprintf(format, args...))
}

// Add is a reflector's.
func (f *follower) Add(o any) error { return f.take(watch.Added, o) }

// Update is a reflector's.
func (f *follower) Update(o any) error { return f.take(watch.Modified, o) }

// Delete is a reflector's.
func (f *follower) Delete(o any) error { return f.take(watch.Deleted, o) }

// Resync is a reflector's, and does nothing.
func (f *follower) Resync() error { return nil }

func (f *follower) take(kind watch.EventType, o any) error {
	object, version := f.read(o)
	f.mu.Lock()
	defer f.mu.Unlock()
	name := object.GetName()
	if kind == watch.Modified && f.query.resource == "pods" && f.items[name] == object.GetResourceVersion() {
		return nil // the status that the node reports during a cut is shown over the version that the pod has
	}
	if _, there := f.items[name]; there != (kind != watch.Added) {
		f.complain("an event that does not fit", "%s %s, which is there: %t", kind, name, there)
	}
	if version <= f.at {
		f.complain("an event that came before", "%s %s at %d, after %d", kind, name, version, f.at)
	}
	f.at = version
	f.events++
	if kind == watch.Deleted {
		delete(f.items, name)
	} else {
		f.items[name] = object.GetResourceVersion()
	}
	return nil
}

// Replace is a reflector's: it has listed.
func (f *follower) Replace(list []any, version string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lists++; f.lists > 1+f.expired {
		f.complain("another list", "at %s, after %d events", version, f.events)
	}
	if len(list) == 0 {
		f.complain("an empty list", "at %s", version)
	}
	f.at, _ = strconv.ParseUint(version, 10, 64) // events of objects say whether it is one
	f.items = map[string]string{}
	for _, o := range list {
		object, _ := f.read(o)
		f.items[object.GetName()] = object.GetResourceVersion()
	}
	return nil
}

// read returns an object's metadata and version.
func (f *follower) read(o any) (metav1.Object, uint64) {
	object := o.(metav1.Object) // reflectors check the type
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		f.complain("an object without a version", "%s: %v", object.GetName(), err)
	}
	return object, version
}

// startFollowers has each pod watch its group's ConfigMaps, one of them alone, and all
// services, and the kubelet what a kubelet watches.
func (w *world) startFollowers() {
	start := func(c *client, q query) { w.followers = append(w.followers, w.follow(c, q)) }
	start(w.node, query{resource: "pods", object: &corev1.Pod{}, fields: "spec.nodeName=" + w.hub.Name})
	start(w.node, query{resource: "services", object: &corev1.Service{}})
	for i, pod := range w.pods {
		start(pod, query{resource: "configmaps", object: &corev1.ConfigMap{}, labels: groupLabel + "=" + accountName(i)})
		start(pod, named(groupName(i, 0)))
		start(pod, query{resource: "services", object: &corev1.Service{}})
		start(w.node, named(podName(i)))
		// Pods start one after the other: a node does not start 200 at once either.
		last := w.followers[len(w.followers)-1]
		w.eventually("the list of "+podName(i), last.listed)
	}
	w.eventually("all lists", func() bool { return !slices.ContainsFunc(w.followers, func(f *follower) bool { return !f.listed() }) })
}

func (f *follower) listed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists > 0
}

func (w *world) summary() string {
	events, watches, expired := 0, 0, 0
	for _, f := range w.followers {
		f.mu.Lock()
		events, watches, expired = events+f.events, watches+f.watches, expired+f.expired
		f.mu.Unlock()
	}
	return fmt.Sprintf("%d followers of %d pods and a kubelet: %d watches begun, %d of them too old; %d events\n",
		len(w.followers), pods, watches, expired, events)
}

func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	if !w.within(2*patience, holds) {
		w.problems.report(w.t)
		w.t.Fatalf("not within %s: %s", 2*patience, what)
	}
}

func (w *world) within(limit time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
