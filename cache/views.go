package cache

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/store"
)

// views is all views there are. It is safe for concurrent use.
type views struct {
	disk    *disk
	records *records
	max     int64 // bytes, of all views together
	now     func() time.Time
	log     *slog.Logger
	full    atomic.Bool // the kubelet's views alone take more than max

	evictions prometheus.Counter

	room room

	mu    sync.RWMutex
	salt  []byte
	byID  map[store.ID]*view
	byKey map[viewKey]*view
	// of are the views in which a user's objects of one resource are.
	of map[userResource][]*view
}

type userResource struct {
	user     string
	resource schema.GroupVersionResource
}

// clone is of for what stays: what is parsed from a URL would keep all of the URL in memory.
func (of userResource) clone() userResource {
	r := &of.resource
	r.Group, r.Version, r.Resource = strings.Clone(r.Group), strings.Clone(r.Version), strings.Clone(r.Resource)
	return of
}

// viewCost is what a view takes on disk without members, about.
const viewCost = 1 << 10

// load takes over the views that are on disk: their headers only, and their
// members when somebody needs them. It may be called again, after the file
// was damaged or could not be opened, and then overrules what is in memory.
func (s *views) load(salt []byte) error {
	s.rename(salt)
	found := map[store.ID]store.View{}
	st, _ := s.disk.now()
	err := st.Views(func(v store.View) error {
		found[v.ID] = v
		return nil
	})
	if err != nil && !errors.Is(err, store.ErrClosed) { // closed: it cannot be opened
		return err
	}
	for _, stored := range found {
		var key viewKey
		if stored.Err == nil && json.Unmarshal(stored.Key, &key) == nil && key.User != nodeUser && !identity.IsKey(key.User) {
			// It is of a release that took the claims of a token for its user.
			s.disk.change(&store.Change{ID: stored.ID, Op: store.Drop})
			delete(found, stored.ID)
			continue
		}
		if stored.Err != nil || json.Unmarshal(stored.Key, &key) != nil || key.id(salt) != stored.ID || !key.representation().Cacheable() {
			s.log.Warn("a part of the cache cannot be read; it is dropped, and read again from the cloud", "view", stored.ID, "err", stored.Err)
			s.disk.change(&store.Change{ID: stored.ID, Op: store.Drop})
			delete(found, stored.ID)
			continue
		}
		v := s.acquire(key)
		v.restore(stored)
		s.settle(v)
		v.release()
	}
	for _, v := range s.all() {
		if _, ok := found[*v.id.Load()]; !ok {
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
		id := v.key.id(salt)
		v.id.Store(&id)
		s.byID[id] = v
	}
}

// find returns a view that there is, or nil.
func (s *views) find(key viewKey) *view {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// acquire returns the view for a key, an empty one if there was none. It stays
// the view for this key until it is released.
func (s *views) acquire(key viewKey) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.byKey[key]
	if v != nil {
		v.holders.Add(1)
		v.touch(s.now())
		return v
	}
	key = key.clone()
	v = newView(s.disk, key.id(s.salt), key)
	v.records, v.highest = s.records, s.records.count(key.resource())
	v.forget()
	v.touch(s.now())
	v.holders.Add(1)
	s.byID[*v.id.Load()], s.byKey[key] = v, v
	of := userResource{key.User, key.resource()}
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
	return slices.Clone(s.of[userResource{user, resource}])
}

// viewed returns the resources of which there are views, by user.
func (s *views) viewed() map[string]map[userResource]bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	users := map[string]map[userResource]bool{}
	for of := range s.of {
		if users[of.user] == nil {
			users[of.user] = map[userResource]bool{}
		}
		users[of.user][of] = true
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
	return v.key.User == nodeUser && kubeletReads[v.key.resource().GroupResource()]
}

const (
	// unusedFor is how many sweeps in a row, all while the cloud can be reached, find
	// that nobody reads a view any more before it goes: 30 days. Views of pods that
	// are gone end so. Clocks have no say in it: they may be wrong by years.
	unusedFor = int(30 * 24 * time.Hour / sweepEvery)
)

// sweep drops views that nobody has used for long, and forgets empty ones. It is
// for one goroutine, and to be called only while the cloud can be reached.
func (s *views) sweep() {
	all := s.all()
	kubelet := slices.ContainsFunc(all, func(v *view) bool { return v.kubelets() && v.holders.Load() > 0 })
	for _, v := range all {
		used := v.used.Load()
		switch {
		case v.holders.Load() > 0 || used != v.seenUsed:
			v.seenUsed, v.unused = used, 0
		case v.kubelets() && !kubelet: // it may just be stopped
		default:
			v.unused++
		}
		if v.unused > unusedFor {
			s.log.Info("dropped from the cache: nobody has read it for long", "view", v.String())
			s.retire(v)
		}
		v.relisting.tidy(s.now())
		if v.empty() && !s.isFloor(v) {
			s.remove(v)
		}
	}
}

func (v *view) empty() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.onDisk
}

// isFloor reports whether there is another view of the same query, and clients have been given
// a state of this one: nothing older may be made of the other one.
func (s *views) isFloor(v *view) bool {
	if v.latest() == "" {
		return false
	}
	for _, other := range s.resource(v.key.User, v.key.resource()) {
		k := other.key
		if k.Representation = v.key.Representation; other != v && k == v.key && !other.empty() {
			return true
		}
	}
	return false
}

// remove forgets an empty view, unless somebody is about to fill it. A view's lock
// may be held by who waits for mu, so never the other way round.
func (s *views) remove(v *view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.holders.Load() > 0 || !v.mu.TryLock() { // it may hold its lock, and wait for mu
		return
	}
	filled := v.onDisk // since the caller looked; nobody fills a view without holding it
	v.mu.Unlock()
	if filled {
		return
	}
	s.room.set(v, usage{})
	delete(s.byID, *v.id.Load())
	delete(s.byKey, v.key)
	of := userResource{v.key.User, v.key.resource()}
	s.of[of] = slices.DeleteFunc(s.of[of], func(other *view) bool { return other == v })
	if len(s.of[of]) == 0 {
		delete(s.of, of)
	}
}

// deny is told that a user was refused a query. In no representation it is
// answered from the cache until the user is let in again.
func (s *views) deny(query *viewKey) {
	for _, v := range s.resource(query.User, query.resource()) {
		k := v.key
		if k.Representation = query.Representation; k == *query {
			v.deny(true)
		}
	}
}
