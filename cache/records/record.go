// Package records stores the state of single objects besides their copies in views: deleted,
// refused, in doubt. [Records] documents the rules.
//
// It depends on views only by two functions, [Records.Needed] and [Records.Viewed], which take
// the locks of views. So the lock of Records is taken after a view's, never before: the
// functions are called before it is taken, and their results are checked after that.
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
//   - If damage on disk has lost copies, or a snapshot has replaced them, this process serves
//     no older copies than its clients have received before.
//   - State that exceeds the bounds is replaced by a stricter one that leads to 503: gone
//     becomes doubt, seen becomes a floor, and refused becomes "refused by name", where only
//     objects that a GET reads from then on are served. The same applies to records that the
//     disk has lost.
//
// It is safe for concurrent use; a nil Records is empty. mu is taken after a view's lock, and
// under it only the disk's. No I/O happens under it: writes are queued for the next commit.
type Records struct {
	// Needed reports whether a view of the user may hold a copy of the object that would be
	// served without the record. It takes the locks of views.
	Needed func(of query.UserResource, name string, one *Record) bool
	// Viewed returns the resources of all views, by user.
	Viewed func() map[string]map[query.UserResource]bool

	mu    sync.RWMutex
	table *table.Table // nil until load
	lost  bool         // some were lost on disk; see distrust
	of    map[query.UserResource]*resourceRecord
	users map[string]*userRecord
	// counted are the versions that were seen, whoever saw them.
	counted map[schema.GroupResource]*Highest
	// learned counts what was learned. An answer to a request that began before it was
	// cannot take it back.
	learned atomic.Uint64
}

const (
	// maxNames bounds the objects of one user and resource of which there is a record, and
	// maxUserNames those of one user: some 600 KB.
	maxNames     = 1024
	maxUserNames = 4096
	// maxUserResources bounds the resources of one user. Beyond it no single objects of
	// further ones are served.
	maxUserResources = 1024
	// maxDoubts bounds the namespaces in which deletions of many objects are remembered.
	maxDoubts = 64
)

// userRecord is what is counted of one user.
type userRecord struct {
	resources, names int
	closed           bool // no further resources are kept apart, and nothing of them is served
	idle             int  // sweeps in a row that found no view of the user
}

// resourceRecord is what is known of one resource, to one user.
type resourceRecord struct {
	names map[string]*Record
	resourceState
	// doubted is when the last of Doubts was learned; see Records.learned. After a restart
	// any request began later.
	doubted uint64
	// damaged is the highest version that clients of this process were given from copies
	// which damage on the disk took away. It is not saved: after a restart an older copy is
	// better than none.
	damaged string
}

// resourceState is the part of a resourceRecord that is not of one object.
type resourceState struct {
	// Floor: no view below this version proves an absence.
	Floor string `json:"floor,omitempty"`
	// Doubts: copies in these namespaces ("" is all) that no view above the version
	// confirms are in doubt.
	Doubts map[string]string `json:"doubts,omitempty"`
	// ByName: everything is refused to a GET but for records with Allowed.
	ByName bool `json:"byName,omitempty"`
}

// Record is what is known of one object.
type Record struct {
	Gone string `json:"gone,omitempty"` // at this version it was not there
	// UID of the object that is gone, where it is known.
	UID types.UID `json:"uid,omitempty"`
	// Had: the user knew the object before. Of what it never had, a 404 of long ago is no
	// news of today.
	Had bool `json:"had,omitempty"`
	// Doubt: a copy that no view above this version confirms is in doubt.
	Doubt string `json:"doubt,omitempty"`
	// Seen: up to this version it was there, and perhaps later, whatever the copies say.
	// SeenUID is the UID of what was seen.
	Seen    string    `json:"seen,omitempty"`
	SeenUID types.UID `json:"seenUID,omitempty"`
	// Proven: after this version it was there, which takes away a doubt.
	Proven  string `json:"proven,omitempty"`
	Refused bool   `json:"refused,omitempty"`
	Allowed bool   `json:"allowed,omitempty"` // to a GET, since resourceState.ByName

	since uint64 // when this was learned; see Records.learned
}

// Known is what seek has to know of one object.
type Known struct {
	Record
	Floor string // of the resource
	// Damaged is the resource's: a copy that no view from this version on confirms may be
	// older than what the user has seen.
	Damaged string
	Doubt   string // the record's, or the resource's if that is higher
	// Closed: too much is known of this user to tell.
	Closed bool
}

// Moment is what was known when a request was sent.
type Moment struct {
	highest uint64 // version that was seen of the resource
	learned uint64
}

// Version is the highest that was seen of the resource then.
func (m Moment) Version() string { return versionOf(m.highest) }

// New returns no records: Load has to be called.
func New() *Records {
	return &Records{of: map[query.UserResource]*resourceRecord{}, users: map[string]*userRecord{}, counted: map[schema.GroupResource]*Highest{}}
}

// Now is called before a request is sent, whoever sends it: it leaves no trace.
func (r *Records) Now(resource schema.GroupVersionResource) Moment {
	return Moment{r.Highest(resource).value(), r.learned.Load()}
}

// Known returns what is known of an object.
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

// Len is how many resources there are of which something is known, each user's by itself.
func (r *Records) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.of)
}
