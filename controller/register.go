package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/tools/cache"
)

// tracked is what the controller remembers of a DaemonSet from one reconcile to
// the next. Nothing in it decides what should be; losing it costs a list, and an
// Event told twice. It belongs to the worker that holds the DaemonSet's key.
type tracked struct {
	// ds is the DaemonSet as it was when it was last worked on. Another of the same name
	// has nothing of what follows.
	ds *appsv1.DaemonSet
	// until is when it may be worked on again after a failure, and retries are the pods
	// that could not be patched.
	until   time.Time
	retries *retries
	// watch is nil unless the DaemonSet opted in.
	watch *watch
	// marked is for whom pods may have marks.
	marked audience
	// rolling is nil unless the DaemonSet is rolled out by its nodes.
	rolling *rolling
	// pace is the only part that is not for the worker alone.
	pace pace
	// report is about the conditions.
	report report
	// What was last said about it, each "" when the matter is settled: the
	// problem with what it asks for, pods that could not be marked, and the sum
	// of the marks.
	problem  string
	unmarked string
	summary  string
}

// audience is for whom the marks are that pods may have.
type audience int

const (
	forNobody audience = iota
	forOwners          // OTA
	forHubs            // AdvancedRollingUpdate, with images first
)

// register holds what is tracked. It is safe for concurrent use.
type register struct {
	mu    sync.Mutex
	byKey map[cache.ObjectName]*tracked // guarded by mu; the values are not
}

func newRegister() *register { return &register{byKey: map[cache.ObjectName]*tracked{}} }

// get returns nil when the DaemonSet is not tracked.
func (r *register) get(key cache.ObjectName) *tracked {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byKey[key]
}

func (r *register) getOrAdd(key cache.ObjectName) *tracked {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.byKey[key]
	if !ok {
		t = &tracked{retries: newRetries()}
		r.byKey[key] = t
	}
	return t
}

// remove returns what was tracked, or nil.
func (r *register) remove(key cache.ObjectName) *tracked {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.byKey[key]
	delete(r.byKey, key)
	return t
}

func (r *register) keys() []cache.ObjectName {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.byKey))
}
