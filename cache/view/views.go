package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Views are all views of the cache. It is safe for concurrent use.
type Views struct {
	Options
	// Records are of the objects in these views, and of others that clients have seen.
	Records *records.Records

	full atomic.Bool // the kubelet's views alone exceed Max

	totals    totals
	asked     asked
	restoring sync.Mutex // held by Restored; taken before any other lock

	mu    sync.RWMutex
	salt  []byte
	byID  map[store.ID]*View
	byKey map[query.Key]*View
	// of are a user's views of one resource.
	of        map[query.UserResource][]*View
	histories map[restoredTogether]*history
}

// Options are options of views. All are required.
type Options struct {
	Disk    *disk.Disk
	Max     int64 // bytes of all views
	Now     func() time.Time
	Log     *slog.Logger
	Evicted func() // called when a view is evicted
	// StoreRestored is called when the store of an apiserver was restored, before its watches end.
	StoreRestored func()
}

// New returns an empty Views with empty Records; the caller must call Load of both.
func New(o Options) *Views {
	s := &Views{Options: o, byID: map[store.ID]*View{}, byKey: map[query.Key]*View{}, of: map[query.UserResource][]*View{}, histories: map[restoredTogether]*history{}}
	s.Records = records.New(s)
	return s
}

// Cost is roughly what a view takes on disk without its members, in bytes.
const Cost = 1 << 10

// Load reads the headers of the views on disk; members are read when they are needed. It may
// be called again after a file was opened late: it fills the views that are empty, and the others become stale.
func (s *Views) Load(salt []byte) error {
	for _, v := range s.All() {
		v.outlive()
	}
	s.rename(salt)
	var found []store.View
	st, _ := s.Disk.Now()
	err := st.Views(func(v store.View) error {
		found = append(found, v)
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrClosed) { // closed: the file could not be opened
		return err
	}
	for _, stored := range found {
		var key query.Key
		readable := stored.Err == nil && json.Unmarshal(stored.Key, &key) == nil
		if !readable || key.ID(salt) != stored.ID || !key.Repr().Cacheable() {
			s.Log.Warn("a part of the cache cannot be read; it is dropped, and read again from the cloud", "view", stored.ID, "err", stored.Err)
			s.Disk.Change(&store.Change{ID: stored.ID, Op: store.Drop})
			continue
		}
		v := s.Acquire(key)
		v.restore(stored)
		s.count(v)
		v.Release()
	}
	return nil
}

// rename sets the IDs of all views, which depend on the salt of the store file.
func (s *Views) rename(salt []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.salt, salt) {
		return
	}
	s.salt = salt
	clear(s.byID)
	for _, v := range s.byKey {
		id := v.Key.ID(salt)
		v.id.Store(&id)
		s.byID[id] = v
	}
}

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
	v.Touch(s.Now())
	return v
}

func (s *Views) addLocked(key query.Key) *View {
	id := key.ID(s.salt)
	v := &View{
		Key: key, raw: key.Bytes(), Scope: key.Scope(), Repr: key.Repr(),
		disk: s.Disk, records: s.Records, Highest: s.Records.Count(key.GVR()), history: s.historyLocked(key.UserResource()),
	}
	v.id.Store(&id)
	v.loaded, v.index = true, map[string]Entry{}
	s.byID[id], s.byKey[key] = v, v
	// Single views come first, so that a GET is answered as before even if a list has other
	// contents of the object at the same version.
	of, at := key.UserResource(), 0
	if !key.Single {
		at = len(s.of[of])
	}
	s.of[of] = slices.Insert(s.of[of], at, v)
	return v
}

// Of returns a user's views of one resource.
func (s *Views) Of(of query.UserResource) []*View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.of[of])
}

// ResourcesByUser returns the resources of all views, by user.
func (s *Views) ResourcesByUser() map[string]map[query.UserResource]bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	users := map[string]map[query.UserResource]bool{}
	for of := range s.of {
		if users[of.User] == nil {
			users[of.User] = map[query.UserResource]bool{}
		}
		users[of.User][of] = true
	}
	return users
}

// All returns all views, in no order.
func (s *Views) All() []*View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.AppendSeq(make([]*View, 0, len(s.byID)), maps.Values(s.byID))
}

// MarkStale marks a view whose changes could not be written. It takes no view's lock, which
// the caller may hold.
func (s *Views) MarkStale(id store.ID, err error) {
	s.mu.RLock()
	v := s.byID[id]
	s.mu.RUnlock()
	if v == nil {
		return
	}
	v.stale.Store(true)
	s.Log.Warn("a part of the cache could not be kept; it is read again from the cloud when there is room", "view", v.String(), "err", err)
}

// MarkDamaged records that a member of a view is damaged on disk. It reports whether that is new.
func (s *Views) MarkDamaged(id store.ID, name string) bool {
	s.mu.RLock()
	v := s.byID[id]
	s.mu.RUnlock()
	if v == nil {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if e, ok := v.index[name]; v.damaged[name] || v.loaded && (!ok || v.holdsLocked(name, e)) {
		return false
	}
	v.damagedLocked(name)
	return true
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

func (v *View) isKubeletView() bool {
	return v.Key.User == query.NodeUser && kubeletReads[v.Key.GVR().GroupResource()]
}

// use is who reads a view, and when it was read last.
type use struct {
	requests atomic.Int32 // that update or read the view now; see Views.Acquire
	used     atomic.Int64 // time of the last read, in Unix nanoseconds
	seenUsed int64        // used at the last sweep
	unused   int          // sweeps since the last read
	// usedBefore is used at the last call of Views.DropUnread, or 0 if the view had holders.
	usedBefore int64
}

// unusedFor is after how many sweeps without a read a view is dropped: 30 days, counting only
// time during which the cloud can be reached. Views of deleted pods end this way. It counts sweeps
// because a node's clock may be wrong by years.
const unusedFor = int(30 * 24 * time.Hour / records.SweepEvery)

// Sweep drops views that no client has used for long, and removes empty ones. It must be
// called by one goroutine at a time, and only while the cloud can be reached.
func (s *Views) Sweep() {
	s.asked.forget(s.Now(), false)
	all := s.All()
	kubelet := slices.ContainsFunc(all, func(v *View) bool { return v.isKubeletView() && v.Holders() > 0 })
	for _, v := range all {
		if !v.Lost() {
			s.asked.keeps(v, s.Now())
		}
		used := v.used.Load()
		switch {
		case v.Holders() > 0 || used != v.seenUsed:
			v.seenUsed, v.unused = used, 0
		case v.isKubeletView() && !kubelet: // the kubelet may be stopped for now
		default:
			v.unused++
		}
		if v.unused > unusedFor {
			s.Log.Info("dropped from the cache: nobody has read it for long", "view", v.String())
			s.retire(v)
		}
		if v.empty() && !s.isFloor(v) {
			s.remove(v)
		}
	}
}

func (v *View) empty() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.onDisk
}

// isFloor reports whether clients have received a state of this view, and another view of
// the same query exists: an answer converted from that one must not be older.
func (s *Views) isFloor(v *View) bool {
	if v.Latest() == "" {
		return false
	}
	for _, other := range s.Of(v.Key.UserResource()) {
		k := other.Key
		if k.Representation = v.Key.Representation; other != v && k == v.Key && !other.empty() {
			return true
		}
	}
	return false
}

// remove removes an empty view, unless a request holds it.
func (s *Views) remove(v *View) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.Holders() > 0 || !v.mu.TryLock() { // waiting could deadlock: its holder may wait for mu
		return
	}
	filled := v.onDisk // since the caller's check; only a holder can fill a view
	v.mu.Unlock()
	if filled {
		return
	}
	s.totals.set(v, usage{})
	delete(s.byID, v.DiskID())
	delete(s.byKey, v.Key)
	of := v.Key.UserResource()
	s.of[of] = slices.DeleteFunc(s.of[of], func(other *View) bool { return other == v })
	if len(s.of[of]) == 0 {
		delete(s.of, of)
	}
}

// Deny records that the apiserver refused a query to a user. The cache does not answer the
// query in any representation until the user has access again.
func (s *Views) Deny(query *query.Key) {
	for _, v := range s.Of(query.UserResource()) {
		k := v.Key
		if k.Representation = query.Representation; k == *query {
			v.Deny(true)
		}
	}
}

// Representations returns the views of a query in all representations.
func (s *Views) Representations(q *query.Query) []*View {
	var all []*View
	for _, metadata := range []string{metav1.SchemeGroupVersion.Version, ""} {
		for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
			if v := s.Find(q.Key(negotiation.Representation{Encoding: e, Metadata: metadata})); v != nil {
				all = append(all, v)
			}
		}
	}
	return all
}

// inheritSeen marks an empty view as behind the other representations of its query: its
// client may have received their state, converted, and the first answer for the view may be
// older than that.
func (s *Views) inheritSeen(v *View) {
	if v.Position() != "" {
		return
	}
	for _, other := range s.Of(v.Key.UserResource()) {
		k := other.Key
		if k.Representation = v.Key.Representation; other != v && k == v.Key {
			v.MarkSeen(other.Position())
		}
	}
}
