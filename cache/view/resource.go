package view

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// resource is what is known of one resource to one user, in all versions of its API: the views, and of single objects what
// views do not show.
//
// Its lock guards all of this. What is changed while it is held is one commit: see unlock.
type resource struct {
	resourceKey
	all     *Views
	user    *userNames
	highest *Highest
	history *history
	use

	views []*View // guarded by Views.mu

	mu      sync.Mutex
	changes []wal.Change // since the lock was taken
	later   bool         // none of them is urgent
	entries map[string]*entry
	// names counts the entries that have no copies, bytes the size of all copies.
	names, copied int
	bytes         int64
	saved         bool // something of it was queued for the disk
	bounds
	// doubted is Views.changed at the last change of doubts. After a restart it is 0, before every request.
	doubted uint64
	reads   uint64    // of entries, so far
	before  uint64    // reads at the last call of Views.DropUnread
	updated time.Time // when a copy was last added
	idle    int       // sweeps in a row without a view or a copy
	// forgotten is set when it was removed from Views.
	forgotten bool
}

type resourceKey struct {
	schema.GroupResource

	user string
}

func keyOf(of query.UserResource) resourceKey {
	return resourceKey{of.Resource.GroupResource(), of.User}
}

// bounds are what is known of all objects of a resource.
type bounds struct {
	// Floor is the version below which no view proves that an object does not exist: something was shown up to there, and not kept.
	Floor string `json:"floor,omitempty"`
	// Doubts are versions by namespace, "" for all: copies are in doubt unless a view above the
	// version, or a later read, confirms them.
	Doubts map[string]string `json:"doubts,omitempty"`
	// ByName means that a GET is refused except for entries with allowed.
	ByName bool `json:"byName,omitempty"`
}

func (b *bounds) isEmpty() bool {
	return b.Floor == "" && len(b.Doubts) == 0 && !b.ByName
}

// userNames counts the entries without copies of a user.
type userNames struct {
	n         atomic.Int64
	resources int // guarded by Views.mu
}

const (
	// maxCopies bounds the objects of a resource that one user has read by themselves. A kubelet reads a few dozen.
	maxCopies = 1024
	// maxNames bounds the entries of one user and resource that have no copy, and maxUserNames those of one user:
	// about 600 KB.
	maxNames     = 1024
	maxUserNames = 4096
	// maxUserResources bounds the resources of one user of which nothing is served.
	maxUserResources = 1024
	// maxDoubts bounds the namespaces of a resource with doubts of their own.
	maxDoubts = 64
)

func (r *resource) lock() { r.mu.Lock() }

// unlock queues all that was changed since lock as one commit.
func (r *resource) unlock() {
	defer r.mu.Unlock()
	if len(r.changes) == 0 {
		return
	}
	put := r.all.Disk.Put
	if r.later {
		put = r.all.Disk.PutLater
	}
	changes := r.changes
	r.changes = nil
	if put(changes...) == nil {
		return
	}
	for _, c := range changes { // the log held a body a moment ago: who needs it loses it
		if err := put(c); err != nil {
			_ = put(wal.Change{Table: c.Table, Clear: true}) // it needs no bodies
			r.all.notWritten(c.Table, err)
		}
	}
}

// put queues a change for unlock.
func (r *resource) put(c wal.Change, later bool) {
	r.later = later && (r.later || len(r.changes) == 0)
	r.changes = append(r.changes, c)
}

// find returns what is known of a resource to a user, locked; nil if there is nothing.
func (s *Views) find(of query.UserResource) *resource {
	for {
		s.mu.RLock()
		r := s.resources[keyOf(of)]
		s.mu.RUnlock()
		if r == nil {
			return nil
		}
		if r.lock(); !r.forgotten {
			return r
		}
		r.unlock()
	}
}

// note returns what is known of a resource to a user, locked, to add something of which nothing can be served; nil if the
// user has too many.
func (s *Views) note(of query.UserResource) *resource {
	if r := s.find(of); r != nil {
		return r
	}
	s.mu.RLock()
	full := s.users[of.User] != nil && s.users[of.User].resources >= maxUserResources
	s.mu.RUnlock()
	if full && !s.makeRoomFor(of.User) {
		return nil
	}
	return s.keep(of)
}

// keep is note for something that can be served, which has bounds of its own.
func (s *Views) keep(of query.UserResource) *resource {
	for {
		s.mu.Lock()
		r := s.resourceLocked(of)
		s.mu.Unlock()
		if r.lock(); !r.forgotten {
			return r
		}
		r.unlock()
	}
}

func (s *Views) resourceLocked(of query.UserResource) *resource {
	r := s.resources[keyOf(of)]
	if r == nil {
		of = of.Clone() // a part of a URL would keep the whole URL in memory
		r = &resource{
			resourceKey: keyOf(of), all: s, user: s.userLocked(of.User), highest: s.highestLocked(of.Resource.GroupResource()),
			history: s.historyLocked(of), entries: map[string]*entry{},
		}
		s.resources[r.resourceKey] = r
	}
	return r
}

// userLocked returns the counts of a user, for one more resource.
func (s *Views) userLocked(name string) *userNames {
	u := s.users[name]
	if u == nil {
		u = new(userNames)
		s.users[name] = u
	}
	u.resources++
	return u
}

// makeRoomFor forgets what is known of a user's resources of which nothing is served. The user may have made them up. It returns
// false if there are none.
func (s *Views) makeRoomFor(user string) (made bool) {
	for _, r := range s.allResources() {
		if r.resourceKey.user == user && s.forget(r) {
			made = true
		}
	}
	return made
}

// forget forgets what is known of a resource, if nothing of it can be served.
func (s *Views) forget(r *resource) bool {
	r.lock()
	s.mu.Lock()
	idle := !r.forgotten && len(r.views) == 0 && r.copied == 0
	r.forgotten = r.forgotten || idle // from here on nobody adds to it
	s.mu.Unlock()
	if idle {
		r.user.n.Add(-int64(r.names))
		r.clearLocked()
	}
	r.unlock() // it is cleared on disk before another one has its table
	if !idle {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.totals.set(r, usage{})
	delete(s.resources, r.resourceKey)
	if r.user.resources--; r.user.resources == 0 {
		delete(s.users, r.resourceKey.user)
	}
	s.uncountLocked(r.GroupResource)
	s.forgetHistoryLocked(r.userResource())
	return true
}

// userResource returns the resource in no version of its API.
func (r *resource) userResource() query.UserResource {
	return query.UserResource{User: r.resourceKey.user, Resource: r.WithVersion("")}
}

// viewsLocked returns the views of the resource.
func (r *resource) viewsLocked() []*View {
	r.all.mu.RLock()
	defer r.all.mu.RUnlock()
	return r.views // it is replaced, and not changed
}

// allResources returns all resources, in no order.
func (s *Views) allResources() []*resource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*resource, 0, len(s.resources))
	for _, r := range s.resources {
		all = append(all, r)
	}
	return all
}

// forgetAfter is after how many sweeps without a view or a copy all else of a resource is forgotten: a day.
const forgetAfter = int(24 * time.Hour / SweepEvery)

// sweepResources forgets what is known of resources of which nothing was served for long, or at all.
func (s *Views) sweepResources() {
	for _, r := range s.allResources() {
		r.lock()
		if r.idle++; len(r.viewsLocked()) > 0 || r.copied > 0 {
			r.idle = 0
		}
		due := r.idle > forgetAfter || r.idle > 1 && len(r.entries) == 0 && r.isEmpty()
		r.unlock()
		if due {
			s.forget(r)
		}
	}
}

// Floor records that objects were shown up to a version, and not kept.
func (s *Views) Floor(of query.UserResource, version string) {
	if !versions.Valid(version) {
		return
	}
	if r := s.note(of); r != nil {
		defer r.unlock()
		r.raiseLocked(version)
	}
}

func (r *resource) raiseLocked(version string) {
	if versions.Valid(version) && versions.Compare(version, r.Floor) > 0 {
		r.Floor = version
		r.saveBoundsLocked()
	}
}

// DoubtAll records that any objects of a namespace, or of all namespaces, may have been deleted at
// a version.
func (s *Views) DoubtAll(of query.UserResource, namespace, version string) {
	if r := s.note(of); r != nil {
		defer r.unlock()
		r.doubtAllLocked(namespace, orFirst(version))
		for name, e := range r.entries { // what has ended an earlier doubt does not end this one
			if of, _ := query.SplitMember(name); e.Proven != "" && (namespace == "" || of == namespace) {
				one := *e
				one.Proven = ""
				r.setLocked(name, &one)
			}
		}
	}
}

func (r *resource) doubtAllLocked(namespace, version string) {
	if r.Doubts == nil {
		r.Doubts = map[string]string{}
	}
	r.Doubts[namespace] = versions.Higher(version, r.Doubts[namespace])
	if len(r.Doubts) > maxDoubts {
		all := ""
		for _, one := range r.Doubts {
			all = versions.Higher(all, one)
		}
		r.Doubts = map[string]string{"": all}
	}
	r.doubted = r.all.changed.Add(1)
	r.saveBoundsLocked()
}

// unknownLocked makes everything about a resource unknown, as if it had too many entries.
func (r *resource) unknownLocked() {
	after := versions.Following(r.highest.Version())
	for name, e := range r.entries {
		one := *e
		one.Allowed, one.Proven = false, ""
		r.setLocked(name, &one)
	}
	r.ByName = true
	r.raiseLocked(after)
	r.doubtAllLocked("", after)
}

// restoredLocked is called when the store of the resource was restored from a backup. Earlier versions cannot be compared with later
// ones, so only refusals remain.
func (r *resource) restoredLocked() {
	r.Floor, r.Doubts = "", nil
	r.saveBoundsLocked()
	for name, e := range r.entries {
		r.setLocked(name, &entry{state: state{Refused: e.Refused, Allowed: e.Allowed}, since: e.since})
	}
}
