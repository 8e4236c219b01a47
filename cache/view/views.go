package view

import (
	"hash/maphash"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Views are all views of the cache. It is safe for concurrent use.
type Views struct {
	Options
	interned interned
	damaged  damagedBodies
	seed     maphash.Seed // of body.quick
	// Boot identifies the current boot of the machine; empty if the kernel does not say it.
	Boot string

	full atomic.Bool // the kubelet's views alone exceed Max

	totals    totals
	asked     asked
	restoring sync.Mutex // held by Restored; taken before any other lock

	changed atomic.Uint64 // counts changes of what is known of objects: an answer to a request that was sent before one cannot revert it

	mu      sync.RWMutex     // taken after a resource's lock
	byTable map[string]*View // by the names of their tables in the log
	byKey   map[query.Key]*View
	// resources are what is known, by users and resources.
	resources map[resourceKey]*resource
	users     map[string]*userNames
	highest   map[schema.GroupResource]*Highest
	histories map[restoredTogether]*history
}

// Options are options of views. All are required.
type Options struct {
	Disk    *wal.Log
	Max     int64 // bytes of all views
	Log     *slog.Logger
	Evicted func() // called when a view is evicted
	// Damaged is called for what is damaged on disk. It may be called under a view's lock.
	Damaged func(error)
	// StoreRestored is called when the store of a resource was restored, before its watches end.
	StoreRestored func(query.UserResource)
}

// New returns an empty Views. The caller must open its log; see LogState.
func New(o Options) *Views {
	return &Views{
		Options: o, byTable: map[string]*View{}, byKey: map[query.Key]*View{},
		resources: map[resourceKey]*resource{}, users: map[string]*userNames{}, highest: map[schema.GroupResource]*Highest{}, histories: map[restoredTogether]*history{},
		seed: maphash.MakeSeed(), Boot: bootID(), damaged: damagedBodies{disk: o.Disk},
	}
}

// viewCost is roughly what a view takes on disk without its members, in bytes.
const viewCost = 1 << 10

// Find returns the view for a key, or nil.
func (s *Views) Find(key query.Key) *View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// Acquire returns the view for a key, and creates an empty one if there is none. It stays
// the view for this key until it is released.
func (s *Views) Acquire(key query.Key) *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byKey[key]
	if v == nil {
		v = s.addLocked(key.Clone())
	}
	v.Hold()
	v.Touch()
	return v
}

func (s *Views) addLocked(key query.Key) *View {
	v := &View{
		Key: key, table: tableOf(&key),
		of: s.resourceLocked(key.UserResource()), feeds: feeds{},
	}
	s.byTable[v.table], s.byKey[key] = v, v
	v.of.views = append(slices.Clone(v.of.views), v)
	return v
}

// Of returns a user's views of one resource in one version of its API.
func (s *Views) Of(of query.UserResource) []*View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.resources[keyOf(of)]
	if r == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.views), func(v *View) bool { return v.Key.Version != of.Resource.Version })
}

// All returns all views, in no order.
func (s *Views) All() []*View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(make([]*View, 0, len(s.byKey)), maps.Values(s.byKey))
}

// kubeletReads are the resources without which a kubelet cannot start pods. The node's own
// views of them are never evicted.
var kubeletReads = map[schema.GroupResource]bool{
	{Resource: "nodes"}: true, {Resource: "pods"}: true, {Resource: "services"}: true,
	{Resource: "configmaps"}: true, {Resource: "secrets"}: true,
	{Resource: "persistentvolumes"}: true, {Resource: "persistentvolumeclaims"}: true,
	{Group: "storage.k8s.io", Resource: "csidrivers"}: true, {Group: "storage.k8s.io", Resource: "csinodes"}: true,
	{Group: "storage.k8s.io", Resource: "volumeattachments"}: true,
	{Group: "node.k8s.io", Resource: "runtimeclasses"}:       true,
	{Group: "coordination.k8s.io", Resource: "leases"}:       true,
}

// isKubelets reports whether kubelet needs what is known of the resource.
func (r *resource) isKubelets() bool {
	return r.resourceKey.user == query.NodeUser && kubeletReads[r.GroupResource]
}

// SweepEvery is the interval at which the cache drops what is no longer needed, and has clients list
// what it has lost.
const SweepEvery = 15 * time.Second

// Sweep drops views that no client has used for long, and removes empty ones. It must be
// called by one goroutine at a time, and only while the cloud can be reached.
func (s *Views) Sweep() {
	s.asked.forget(false)
	s.sweepDamaged()
	all := s.All()
	kubelet := slices.ContainsFunc(all, func(v *View) bool { return v.of.isKubelets() && v.Holders() > 0 })
	for _, v := range all {
		if !v.Lost() {
			s.asked.keeps(v)
		}
		if v.isUnused(v.of.isKubelets() && !kubelet) {
			s.Log.Info("dropped from the cache: nobody has read it for long", "view", v.String())
			s.retire(v)
		}
		if v.empty() && !s.isFloor(v) {
			s.remove(v)
		}
	}
	for _, r := range s.allResources() {
		if r.isUnused(r.isKubelets() && !kubelet) {
			r.evict()
		}
	}
	s.sweepResources()
}

func (v *View) empty() bool {
	v.of.lock()
	defer v.of.unlock()
	return !v.onDisk
}

// isFloor reports whether clients have received a state of this view, and another view of
// the same query exists: an answer converted from that one must not be older.
func (s *Views) isFloor(v *View) bool {
	if v.Latest() == "" {
		return false
	}
	for _, other := range s.Of(v.Key.UserResource()) {
		if other != v && other.Key.WithoutForm() == v.Key.WithoutForm() && !other.empty() {
			return true
		}
	}
	return false
}

// remove removes an empty view, unless a request holds it.
func (s *Views) remove(v *View) {
	v.of.lock()
	defer v.of.unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.Holders() > 0 || v.onDisk || s.byKey[v.Key] != v { // since the caller's check
		return
	}
	s.totals.set(v, usage{})
	delete(s.byTable, v.table)
	delete(s.byKey, v.Key)
	v.of.views = slices.DeleteFunc(slices.Clone(v.of.views), func(other *View) bool { return other == v })
}

// Deny records that the apiserver refused a query to a user. The cache does not answer the
// query in any form until the user has access again, nor with objects that only a stream of such a query has shown.
func (s *Views) Deny(query *query.Key) {
	for _, v := range s.Of(query.UserResource()) {
		if v.Key.WithoutForm() == query.WithoutForm() {
			v.Deny(true)
		}
	}
	if r := s.find(query.UserResource()); r != nil {
		defer r.unlock()
		for name, e := range r.entries {
			if len(e.copies) > 0 && !e.Own && query.Covers(name) {
				r.dropCopiesLocked(name)
			}
		}
	}
}

// Forms returns the views of a query in all forms.
func (s *Views) Forms(q *query.Query) (all []*View) {
	key := q.Key(wire.Representation{})
	for _, v := range s.Of(q.UserResource()) {
		if v.Key.WithoutForm() == key {
			all = append(all, v)
		}
	}
	return all
}

// inheritSeen marks an empty view as behind the other forms of its query: its
// client may have received their state, converted, and the first answer for the view may be
// older than that.
func (s *Views) inheritSeen(v *View) {
	if v.Position() != "" {
		return
	}
	for _, other := range s.Of(v.Key.UserResource()) {
		if other != v && other.Key.WithoutForm() == v.Key.WithoutForm() {
			v.MarkSeen(other.Position())
		}
	}
}

// bootID identifies the current boot of the machine; it is empty if the kernel does not provide
// it.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// headerTime returns the time for headers, in seconds.
func headerTime() time.Time { return time.Now().UTC().Truncate(time.Second) }
