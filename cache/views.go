package cache

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
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/records"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/wire"
)

// views is all views there are. It is safe for concurrent use.
type views struct {
	viewsOptions
	full atomic.Bool // the kubelet's views alone take more than max

	room room

	mu    sync.RWMutex
	salt  []byte
	byID  map[store.ID]*view
	byKey map[query.Key]*view
	// of are the views in which a user's objects of one resource are.
	of map[query.UserResource][]*view
}

// viewsOptions are options of views. All are required.
type viewsOptions struct {
	disk    *disk.Disk
	records *records.Records
	max     int64 // bytes, of all views together
	now     func() time.Time
	log     *slog.Logger
	// evicted is called before a view is evicted, and removed after one of which nothing is
	// left was forgotten. Evicted views are still there while streams have them.
	evicted, removed func(*view)
}

// newViews returns no views: load has to be called.
func newViews(o viewsOptions) *views {
	return &views{viewsOptions: o, byID: map[store.ID]*view{}, byKey: map[query.Key]*view{}, of: map[query.UserResource][]*view{}}
}

// viewCost is what a view takes on disk without members, about.
const viewCost = 1 << 10

// load takes over the views that are on disk: their headers only, and their
// members when somebody needs them. It may be called again, after the file
// was damaged or could not be opened, and then overrules what is in memory.
func (s *views) load(salt []byte) error {
	s.rename(salt)
	found := map[store.ID]store.View{}
	st, _ := s.disk.Now()
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
			s.disk.Change(&store.Change{ID: stored.ID, Op: store.Drop})
			delete(found, stored.ID)
			continue
		}
		if stored.Err != nil || json.Unmarshal(stored.Key, &key) != nil || key.ID(salt) != stored.ID || !key.Repr().Cacheable() {
			s.log.Warn("a part of the cache cannot be read; it is dropped, and read again from the cloud", "view", stored.ID, "err", stored.Err)
			s.disk.Change(&store.Change{ID: stored.ID, Op: store.Drop})
			delete(found, stored.ID)
			continue
		}
		v := s.acquire(key)
		v.restore(stored)
		s.settle(v)
		v.release()
	}
	for _, v := range s.all() {
		if _, ok := found[v.diskID()]; !ok {
			v.forget()
		}
	}
	return nil
}

// rename gives the views the names that they have with a salt.
func (s *views) rename(salt []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if bytes.Equal(s.salt, salt) {
		return
	}
	s.salt = salt
	clear(s.byID)
	for _, v := range s.byKey {
		id := v.key.ID(salt)
		v.id.Store(&id)
		s.byID[id] = v
	}
}

// find returns a view that there is, or nil.
func (s *views) find(key query.Key) *view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// acquire returns the view for a key, an empty one if there was none. It stays
// the view for this key until it is released.
func (s *views) acquire(key query.Key) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byKey[key]
	if v != nil {
		v.hold()
		v.touch(s.now())
		return v
	}
	key = key.Clone()
	v = newView(s.disk, key.ID(s.salt), key)
	v.records, v.highest = s.records, s.records.Count(key.GVR())
	v.forget()
	v.touch(s.now())
	v.hold()
	s.byID[v.diskID()], s.byKey[key] = v, v
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
func (s *views) resource(user string, resource schema.GroupVersionResource) []*view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.of[query.UserResource{User: user, Resource: resource}])
}

// viewed returns the resources of which there are views, by user.
func (s *views) viewed() map[string]map[query.UserResource]bool {
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

func (s *views) all() []*view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*view, 0, len(s.byID))
	for _, v := range s.byID {
		all = append(all, v)
	}
	return all
}

// lost is told of a view whose changes did not reach the disk. It must not
// wait for a view's lock: it may be called by who holds it.
func (s *views) lost(id store.ID, err error) {
	s.mu.RLock()
	v := s.byID[id]
	s.mu.RUnlock()
	if v == nil {
		return
	}
	v.lost.Store(true)
	s.log.Warn("a part of the cache could not be kept; it is read again from the cloud when there is room", "view", v.String(), "err", err)
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

func (v *view) kubelets() bool {
	return v.key.User == query.NodeUser && kubeletReads[v.key.GVR().GroupResource()]
}

const (
	// unusedFor is how many sweeps in a row, all while the cloud can be reached, find
	// that nobody reads a view any more before it goes: 30 days. Views of pods that
	// are gone end so. Clocks have no say in it: they may be wrong by years.
	unusedFor = int(30 * 24 * time.Hour / records.SweepEvery)
)

// sweep drops views that nobody has used for long, and forgets empty ones. It is
// for one goroutine, and to be called only while the cloud can be reached.
func (s *views) sweep() {
	all := s.all()
	kubelet := slices.ContainsFunc(all, func(v *view) bool { return v.kubelets() && v.holders() > 0 })
	for _, v := range all {
		used := v.used.Load()
		switch {
		case v.holders() > 0 || used != v.seenUsed:
			v.seenUsed, v.unused = used, 0
		case v.kubelets() && !kubelet: // it may just be stopped
		default:
			v.unused++
		}
		if v.unused > unusedFor {
			s.log.Info("dropped from the cache: nobody has read it for long", "view", v.String())
			s.retire(v)
		}
		if v.empty() {
			s.remove(v)
		}
	}
}

func (v *view) empty() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.onDisk
}

// remove forgets an empty view, unless somebody is about to fill it. A view's lock
// may be held by who waits for mu, so never the other way round.
func (s *views) remove(v *view) {
	if s.removeEmpty(v) {
		s.removed(v)
	}
}

func (s *views) removeEmpty(v *view) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.holders() > 0 || !v.mu.TryLock() { // it may hold its lock, and wait for mu
		return false
	}
	filled := v.onDisk // since the caller looked; nobody fills a view without holding it
	v.mu.Unlock()
	if filled {
		return false
	}
	s.room.set(v, usage{})
	delete(s.byID, v.diskID())
	delete(s.byKey, v.key)
	of := query.UserResource{User: v.key.User, Resource: v.key.GVR()}
	s.of[of] = slices.DeleteFunc(s.of[of], func(other *view) bool { return other == v })
	if len(s.of[of]) == 0 {
		delete(s.of, of)
	}
	return true
}

// deny is told that a user was refused a query. In no representation it is
// answered from the cache until the user is let in again.
func (s *views) deny(query *query.Key) {
	for _, v := range s.resource(query.User, query.GVR()) {
		k := v.key
		if k.Representation = query.Representation; k == *query {
			v.deny(true)
		}
	}
}

// forms are the views of a query in all representations.
func (s *views) forms(q *query.Query) []*view {
	var all []*view
	for _, metadata := range []string{metav1.SchemeGroupVersion.Version, ""} {
		for _, e := range []wire.Encoding{wire.Protobuf, wire.JSON} {
			if v := s.find(q.Key(wire.Representation{Encoding: e, Metadata: metadata})); v != nil {
				all = append(all, v)
			}
		}
	}
	return all
}

// outdo has a view that gets its first state, and not the newest there is, be behind what
// the same query returned in other forms: its client may have been given that, converted.
func (s *views) outdo(q *query.Query, v *view) {
	if v.position() != "" {
		return
	}
	for _, other := range s.forms(q) {
		if p := other.position(); p != "" {
			v.sawState(p)
		}
	}
}
