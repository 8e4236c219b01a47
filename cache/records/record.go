// Package records stores the state of single objects besides their copies in views: deleted,
// refused, in doubt. [Records] documents the rules.
//
// It depends on views only by [Copies], whose methods take the locks of views. So the lock of
// Records is taken after a view's, never before: the methods are called before it is taken, and
// their results are checked after that.
package records

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/table"
	"github.com/edgehub-io/edgehub/cache/versions"
)

// Records are the states of single objects besides their copies in views: deleted, refused, in
// doubt. There is one record for each user, resource and name, for all views and
// representations. The rules are these.
//
//   - An object is gone if an apiserver has said so about exactly this object (404 NotFound,
//     the answer to a DELETE), or by a DELETED event of a watch that objects leave only by
//     deletion. A 404 has no version: it counts from the highest resourceVersion of the
//     resource that the hub had seen before the request. A copy is newer than the record only
//     if its version is higher and its UID is another one: UIDs are never reused.
//   - If it is unknown whether an object is gone, its copies are in doubt: they are not
//     served, and prove nothing, until a view shows a later state.
//   - An object that was refused to a GET stays refused until a GET of it succeeds.
//   - Absence must be proven at a version as new as everything that was seen. What a view had
//     seen before it was evicted, dropped or damaged remains as a floor of its user and
//     resource: no view below the floor proves absence.
//   - If damage on disk has lost copies, or an older file was opened late, this process serves
//     no older copies than its clients have received before.
//   - State that exceeds the bounds is replaced by a stricter one that leads to 503: gone
//     becomes doubt, seen becomes a floor, and refused becomes "refused by name", where only
//     objects that a GET reads from then on are served. The same applies to records that the
//     disk has lost.
//
// It is safe for concurrent use; a nil Records is empty. mu is taken after a view's lock, and
// under it only the disk's. No I/O happens under it: writes are queued for the next commit.
type Records struct {
	copies Copies

	mu    sync.RWMutex
	table *table.Table // nil until Load
	lost  bool         // the disk has lost some; see Distrust
	of    map[query.UserResource]*resourceRecord
	users map[string]*userRecord
	// counted are the highest versions that any user has seen.
	counted map[schema.GroupResource]*Highest
	// learned counts changes of records. The answer to a request that was sent before a change
	// cannot revert it.
	learned atomic.Uint64
}

// Copies are the copies of objects in views.
type Copies interface {
	// Needed reports whether a view of the user may hold a copy of the object that would be
	// served without the record.
	Needed(of query.UserResource, name string, one *Record) bool
	// ResourcesByUser returns the resources of all views, by user.
	ResourcesByUser() map[string]map[query.UserResource]bool
}

const (
	// maxNames bounds the records of one user and resource, and maxUserNames those of one user:
	// about 600 KB.
	maxNames     = 1024
	maxUserNames = 4096
	// maxUserResources bounds the resources of one user. Objects of further resources are not
	// served to a GET.
	maxUserResources = 1024
	// maxDoubts bounds the namespaces of a resource with doubts of their own.
	maxDoubts = 64
)

// userRecord has the counts of one user.
type userRecord struct {
	resources, names int
	closed           bool // the user has too many resources: further ones have no records, and are not served
	idle             int  // sweeps in a row that found no view of the user
}

// resourceRecord has the records of one user and resource.
type resourceRecord struct {
	names map[string]*Record
	resourceState
	// doubted is Records.learned at the last change of Doubts. After a restart it is 0, before
	// every request.
	doubted uint64
	// damaged is the highest version that clients of this process have received from copies that
	// damage on disk has lost. It is not saved: after a restart an older copy is better than
	// none.
	damaged string
}

// resourceState is the state of all objects of a resource.
type resourceState struct {
	// Floor is the version below which no view proves absence.
	Floor string `json:"floor,omitempty"`
	// Doubts are versions by namespace, "" for all: copies are in doubt unless a view above the
	// version confirms them.
	Doubts map[string]string `json:"doubts,omitempty"`
	// ByName means that a GET is refused except for records with Allowed.
	ByName bool `json:"byName,omitempty"`
}

// Record is the state of one object.
type Record struct {
	// Gone is a version at which the object did not exist, UID its UID, if that is known.
	Gone string    `json:"gone,omitempty"`
	UID  types.UID `json:"uid,omitempty"`
	// Had means that the user had read the object before. If not, an old 404 does not prove
	// that the object does not exist now.
	Had bool `json:"had,omitempty"`
	// Doubt is a version: copies are in doubt unless a view above it confirms them.
	Doubt string `json:"doubt,omitempty"`
	// Seen is a version up to which, at least, the object existed, whatever the copies show.
	Seen    string    `json:"seen,omitempty"`
	SeenUID types.UID `json:"seenUID,omitempty"`
	// Proven is a version after which the object existed, which ends an older doubt.
	Proven  string `json:"proven,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	Allowed bool   `json:"allowed,omitempty"` // to a GET, since resourceState.ByName

	since uint64 // Records.learned at the last change
}

// Known is all that is recorded about one object.
type Known struct {
	Record
	Floor string // of the resource
	// Damaged is that of the resource: a copy may be older than what the user has seen, unless
	// a view from this version on confirms it.
	Damaged string
	Doubt   string // the higher one of the record and of the resource
	Closed  bool   // the user has too many resources, so nothing is known
}

// Moment is the state of the records of a resource when a request was sent.
type Moment struct {
	highest uint64 // version
	learned uint64
}

// Version returns the highest version that had been seen of the resource.
func (m Moment) Version() string { return versionOf(m.highest) }

// New returns empty Records; the caller must call Load. New itself does not call c.
func New(c Copies) *Records {
	return &Records{copies: c, of: map[query.UserResource]*resourceRecord{}, users: map[string]*userRecord{}, counted: map[schema.GroupResource]*Highest{}}
}

// Now returns the current Moment. It is called for all users' requests, so it stores nothing.
func (r *Records) Now(resource schema.GroupVersionResource) Moment {
	return Moment{r.Highest(resource).value(), r.learned.Load()}
}

// Known returns all that is recorded about an object.
func (r *Records) Known(of query.UserResource, namespace, name string) Known {
	r.mu.RLock()
	defer r.mu.RUnlock()
	resource := r.of[of]
	if resource == nil {
		user := r.users[of.User]
		return Known{Closed: user != nil && user.closed}
	}
	k := Known{Floor: resource.Floor, Damaged: resource.damaged, Doubt: versions.Higher(resource.Doubts[""], resource.Doubts[namespace])}
	if one := resource.names[name]; one != nil {
		k.Record = *one
		k.Doubt = versions.Higher(k.Doubt, one.Doubt)
	}
	k.Refused = k.Refused || resource.ByName && !k.Allowed
	return k
}

// Len returns the number of resources of all users that have records.
func (r *Records) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.of)
}
