package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/disk"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/negotiation"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// Views is all views there are. It is safe for concurrent use.
type Views struct {
	Options
	full atomic.Bool // the kubelet's views alone take more than max

	room room

	mu    sync.RWMutex
	salt  []byte
	byID  map[store.ID]*View
	byKey map[query.Key]*View
	// of are the views in which a user's objects of one resource are.
	of map[query.UserResource][]*View
}

// Options are options of views. All are required.
type Options struct {
	Disk    *disk.Disk
	Records *records.Records
	Max     int64 // bytes, of all views together
	Now     func() time.Time
	Log     *slog.Logger
	// evicted is called before a view is evicted, and removed after one of which nothing is
	// left was forgotten. Evicted views are still there while streams have them.
	Evicted, Removed func(*View)
}

// New returns no views: load has to be called.
func New(o Options) *Views {
	return &Views{Options: o, byID: map[store.ID]*View{}, byKey: map[query.Key]*View{}, of: map[query.UserResource][]*View{}}
}

// Cost is what a view takes on disk without members, about.
const Cost = 1 << 10

// Load takes over the views that are on disk: their headers only, and their
// members when somebody needs them. It may be called again, after the file
// was damaged or could not be opened, and then overrules what is in memory.
func (s *Views) Load(salt []byte) error {
	s.rename(salt)
	found := map[store.ID]store.View{}
	st, _ := s.Disk.Now()
	err := st.Views(func(v store.View) error {
		found[v.ID] = v
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrClosed) { // closed: it cannot be opened
		return err
	}
	for _, stored := range found {
		var key query.Key
		if stored.Err == nil && json.Unmarshal(stored.Key, &key) == nil && key.User != query.NodeUser && !identity.IsKey(key.User) {
			// It is of a release that took the claims of a token for its user.
			s.Disk.Change(&store.Change{ID: stored.ID, Op: store.Drop})
			delete(found, stored.ID)
			continue
		}
		if stored.Err != nil || json.Unmarshal(stored.Key, &key) != nil || key.ID(salt) != stored.ID || !key.Repr().Cacheable() {
			s.Log.Warn("a part of the cache cannot be read; it is dropped, and read again from the cloud", "view", stored.ID, "err", stored.Err)
			s.Disk.Change(&store.Change{ID: stored.ID, Op: store.Drop})
			delete(found, stored.ID)
			continue
		}
		v := s.Acquire(key)
		v.restore(stored)
		s.settle(v)
		v.Release()
	}
	for _, v := range s.All() {
		if _, ok := found[v.DiskID()]; !ok {
			v.forget()
		}
	}
	return nil
}

// rename gives the views the names that they have with a salt.
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

// Find returns a view that there is, or nil.
func (s *Views) Find(key query.Key) *View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// Acquire returns the view for a key, an empty one if there was none. It stays
// the view for this key until it is released.
func (s *Views) Acquire(key query.Key) *View {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byKey[key]
	if v != nil {
		v.Hold()
		v.Touch(s.Now())
		return v
	}
	key = key.Clone()
	v = newView(s.Disk, key.ID(s.salt), key)
	v.records, v.Highest = s.Records, s.Records.Count(key.GVR())
	v.forget()
	v.Touch(s.Now())
	v.Hold()
	s.byID[v.DiskID()], s.byKey[key] = v, v
	of := query.UserResource{User: key.User, Resource: key.GVR()}
	if key.Single {
		// First: where a list has the same version of an object with other contents, a
		// GET is answered again as it was.
		s.of[of] = slices.Insert(s.of[of], 0, v)
	} else {
		s.of[of] = append(s.of[of], v)
	}
	return v
}

// resource returns a user's views of one resource.
func (s *Views) resource(user string, resource schema.GroupVersionResource) []*View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.of[query.UserResource{User: user, Resource: resource}])
}

// Viewed returns the resources of which there are views, by user.
func (s *Views) Viewed() map[string]map[query.UserResource]bool {
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
	all := make([]*View, 0, len(s.byID))
	for _, v := range s.byID {
		all = append(all, v)
	}
	return all
}

// Lost is told of a view whose changes did not reach the disk. It must not
// wait for a view's lock: it may be called by who holds it.
func (s *Views) Lost(id store.ID, err error) {
	s.mu.RLock()
	v := s.byID[id]
	s.mu.RUnlock()
	if v == nil {
		return
	}
	v.stale.Store(true)
	s.Log.Warn("a part of the cache could not be kept; it is read again from the cloud when there is room", "view", v.String(), "err", err)
}

// kubeletReads are the resources without which a kubelet cannot start pods.
// What the node itself has read of them is never evicted.
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

const (
	// unusedFor is how many sweeps in a row, all while the cloud can be reached, find
	// that nobody reads a view any more before it goes: 30 days. Views of pods that
	// are gone end so. Clocks have no say in it: they may be wrong by years.
	unusedFor = int(30 * 24 * time.Hour / records.SweepEvery)
)

// Sweep drops views that nobody has used for long, and forgets empty ones. It is
// for one goroutine, and to be called only while the cloud can be reached.
func (s *Views) Sweep() {
	all := s.All()
	kubelet := slices.ContainsFunc(all, func(v *View) bool { return v.isKubeletView() && v.Holders() > 0 })
	for _, v := range all {
		used := v.used.Load()
		switch {
		case v.Holders() > 0 || used != v.seenUsed:
			v.seenUsed, v.unused = used, 0
		case v.isKubeletView() && !kubelet: // it may just be stopped
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

// isFloor reports whether there is another view of the same query, and clients have been given
// a state of this one: nothing older may be made of the other one.
func (s *Views) isFloor(v *View) bool {
	if v.Latest() == "" {
		return false
	}
	for _, other := range s.resource(v.Key.User, v.Key.GVR()) {
		k := other.Key
		if k.Representation = v.Key.Representation; other != v && k == v.Key && !other.empty() {
			return true
		}
	}
	return false
}

// Gave notes that a client who asked for a view was given that state of another one, converted:
// an older state of the view itself is no answer any more. It may just be on its way, or be
// refused for now.
func (s *Views) Gave(key query.Key, version string) {
	v := s.Acquire(key)
	defer v.Release()
	v.SawState(version)
}

// remove forgets an empty view, unless somebody is about to fill it. A view's lock
// may be held by who waits for mu, so never the other way round.
func (s *Views) remove(v *View) {
	if s.removeEmpty(v) {
		s.Removed(v)
	}
}

func (s *Views) removeEmpty(v *View) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.Holders() > 0 || !v.mu.TryLock() { // it may hold its lock, and wait for mu
		return false
	}
	filled := v.onDisk // since the caller looked; nobody fills a view without holding it
	v.mu.Unlock()
	if filled {
		return false
	}
	s.room.set(v, usage{})
	delete(s.byID, v.DiskID())
	delete(s.byKey, v.Key)
	of := query.UserResource{User: v.Key.User, Resource: v.Key.GVR()}
	s.of[of] = slices.DeleteFunc(s.of[of], func(other *View) bool { return other == v })
	if len(s.of[of]) == 0 {
		delete(s.of, of)
	}
	return true
}

// Deny is told that a user was refused a query. In no representation it is
// answered from the cache until the user is let in again.
func (s *Views) Deny(query *query.Key) {
	for _, v := range s.resource(query.User, query.GVR()) {
		k := v.Key
		if k.Representation = query.Representation; k == *query {
			v.Deny(true)
		}
	}
}

// Forms are the views of a query in all representations.
func (s *Views) Forms(q *query.Query) []*View {
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

// Outdo has a view that gets its first state, and not the newest there is, be behind what
// the same query returned in other forms: its client may have been given that, converted.
func (s *Views) Outdo(q *query.Query, v *View) {
	if v.Position() != "" {
		return
	}
	for _, other := range s.Forms(q) {
		if p := other.Position(); p != "" {
			v.SawState(p)
		}
	}
}
