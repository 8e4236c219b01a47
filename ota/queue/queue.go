// Package queue has the upgrades of a node that begin later: when the cloud is back, at a time, in a
// window, or when a hold ends.
//
// An upgrade is a file before its request is answered. Once it is due and the cloud can be reached, it
// is carried out as a request would be that comes then: with the same checks, by a function that
// package ota has for it. Before the pod's deletion is sent, the file says so (InProgress): that is
// the point from which the upgrade cannot be cancelled. A crash between that and the end repeats the
// attempt, which is harmless: the deletion is for the pod's UID, and a pod that is gone by then means
// Done. An upgrade that does not apply any more is Dropped, with an Event.
//
// One upgrade is attempted at a time, and a failed one is attempted again after a backoff, so that
// neither the apiserver nor the node has to bear a hundred at once.
package queue

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/ota"
	"github.com/edgehub-io/edgehub/ota/api"
	"github.com/edgehub-io/edgehub/ota/podfiles"
	"github.com/edgehub-io/edgehub/ota/podreport"
)

// Pods are the pods of the node, as far as they are known.
type Pods interface {
	// Get returns a pod, read-only, or nil.
	Get(types.NamespacedName) *corev1.Pod
	// Synced reports whether the pods are known.
	Synced() bool
}

// Options are the options of New. Those without a default are required. All functions and interfaces
// must be safe for concurrent use, and must not block.
type Options struct {
	Dir  string // of the files; it is created if it does not exist
	Pods Pods
	// Online reports whether the node can use the cloud.
	Online func() bool
	// Off has nothing carried out or accepted. What is in the files is shown, and can be cancelled.
	Off bool
	// Hold returns the hold of a pod, and false if it has none. Nil: there are none.
	Hold func(types.NamespacedName) (api.Hold, bool)
	// Changed is called when Report may return something else. Nil: nobody reports.
	Changed func()
	// Event records an Event of a pod.
	Event func(pod *corev1.ObjectReference, eventType, reason, message string)
	// Now is the wall clock. Nil: time.Now.
	Now func() time.Time
	// Registerer registers the metrics. Nil registers none.
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Queue is an ota.Queue. It is safe for concurrent use.
type Queue struct {
	Options
	files *podfiles.Folder[entry]
	wake  chan struct{} // one message stands for any number of changes

	disk  sync.Mutex // held while items change, so that files and memory agree
	mu    sync.Mutex // taken after disk, and never held during I/O
	items map[types.NamespacedName]*item
}

// New reads the files. It starts nothing.
func New(o Options) (*Queue, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	files, entries, err := podfiles.Open[entry](o.Dir, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open the queue of upgrades: %w", err)
	}
	q := &Queue{Options: o, files: files, wake: make(chan struct{}, 1), items: map[types.NamespacedName]*item{}}
	for name, e := range entries {
		e.Namespace, e.Pod = name.Namespace, name.Name
		if e.State.Final() && e.Ended == nil {
			e.Ended = &e.Requested
		}
		it, err := newItem(e)
		q.items[name] = it
		if err != nil && !e.State.Final() { // a time zone that the node does not know any more
			q.drop(it, err)
		}
	}
	if err := q.register(); err != nil {
		return nil, err
	}
	return q, nil
}

// Add implements ota.Queue. Its caller does not call it if Off.
func (q *Queue) Add(pod *corev1.Pod, revision string, when ota.When) (api.Upgrade, error) {
	e := entry{Force: when.Force, Upgrade: api.Upgrade{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		Action: api.UpgradeAction, Revision: revision, State: api.WaitingForCloud,
		Requested: q.Now().UTC().Round(0), Window: when.Window, TimeZone: when.TimeZone,
	}}
	if !when.At.IsZero() {
		e.At = &when.At
	}
	it, err := newItem(e)
	if err != nil {
		return api.Upgrade{}, err
	}
	q.disk.Lock()
	defer q.disk.Unlock()
	if last := q.get(it.pod()); last != nil && last.UID == it.UID && !last.State.Final() {
		switch {
		case last.same(it):
			return q.show(last), nil
		case last.State == api.InProgress:
			return api.Upgrade{}, ota.ErrBegun
		}
	}
	if err := q.files.Put(it.pod(), e); err != nil {
		return api.Upgrade{}, err
	}
	q.set(it)
	q.Changed()
	q.Wake()
	return q.show(it), nil
}

// Cancel implements ota.Queue.
func (q *Queue) Cancel(pod types.NamespacedName) (bool, error) {
	q.disk.Lock()
	defer q.disk.Unlock()
	it := q.get(pod)
	switch {
	case it == nil || it.State.Final():
		return false, nil
	case it.State == api.InProgress:
		return false, ota.ErrBegun
	}
	it = it.ended(api.Withdrawn, "", q.Now())
	if err := q.files.Put(pod, it.entry); err != nil {
		return false, err
	}
	q.set(it)
	q.Changed()
	return true, nil
}

// State implements ota.Queue.
func (q *Queue) State(pod types.NamespacedName) (api.Upgrade, bool) {
	it := q.get(pod)
	if it == nil {
		return api.Upgrade{}, false
	}
	return q.show(it), true
}

// States implements ota.Queue.
func (q *Queue) States() []api.Upgrade {
	all := []api.Upgrade{}
	for _, it := range q.all() {
		all = append(all, q.show(it))
	}
	slices.SortFunc(all, api.Upgrade.Compare)
	return all
}

// Report is a podreport.Source: the cloud is shown what waits.
func (q *Queue) Report(pod *corev1.Pod) podreport.Report {
	value := ""
	if it := q.get(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}); it != nil && it.UID == string(pod.UID) && !it.State.Final() && !q.Off {
		w := api.Waiting{Revision: it.Revision, Requested: metav1.NewTime(it.Requested), Window: it.Window, TimeZone: it.TimeZone}
		if it.At != nil {
			w.At = &metav1.Time{Time: *it.At}
		}
		value = w.Encode()
	}
	return podreport.Report{Annotations: map[string]string{api.WaitingAnnotation: value}}
}

// show returns an upgrade as it is now.
func (q *Queue) show(it *item) api.Upgrade {
	u := it.Upgrade
	if u.State.Final() {
		return u
	}
	u.Message = it.problem
	switch {
	case u.State == api.InProgress:
		return u
	case q.Off:
		u.Message = "this hub was started with --queue-upgrades=false, which carries out nothing: cancel it with DELETE …/upgrade, or start the hub without"
		return u
	}
	now := q.now()
	if next := it.next(now); next.After(now) {
		u.State, u.Next = api.Scheduled, &next
		return u
	}
	if hold, ok := q.hold(it); ok {
		u.State, u.Message = api.Held, "its pod is on hold until "+hold.Until.Format(time.RFC3339)
		return u
	}
	if !q.Online() {
		u.Message = "the cloud cannot be reached"
	}
	return u
}

// hold returns the hold that an upgrade has to wait for.
func (q *Queue) hold(it *item) (api.Hold, bool) {
	if q.Hold == nil || it.Force {
		return api.Hold{}, false
	}
	return q.Hold(it.pod())
}

// now is the wall clock alone: comparisons follow its corrections.
func (q *Queue) now() time.Time { return q.Now().Round(0) }

func (q *Queue) get(pod types.NamespacedName) *item {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items[pod]
}

func (q *Queue) all() []*item {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := slices.Collect(maps.Values(q.items))
	slices.SortFunc(all, func(a, b *item) int { return a.Compare(b.Upgrade) })
	return all
}

// set puts an item in place of its pod's last one. The caller holds q.disk.
func (q *Queue) set(it *item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items[it.pod()] = it
}

// register registers the metrics.
func (q *Queue) register() error {
	if q.Registerer == nil {
		return nil
	}
	var all []error
	for _, state := range []api.UpgradeState{
		api.WaitingForCloud, api.Scheduled, api.Held, api.InProgress,
		api.Done, api.Dropped, api.Withdrawn,
	} {
		all = append(all, q.Registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "edgehub_ota_queued_upgrades",
			Help:        "Upgrades that wait, are in progress, or have ended in the last week, by state.",
			ConstLabels: prometheus.Labels{"state": string(state)},
		}, func() float64 {
			n := 0
			for _, u := range q.States() {
				if u.State == state {
					n++
				}
			}
			return float64(n)
		})))
	}
	if err := errors.Join(all...); err != nil {
		return fmt.Errorf("register metrics of the queue of upgrades: %w", err)
	}
	return nil
}
