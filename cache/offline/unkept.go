package offline

import (
	"hash/maphash"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
)

const (
	// maxUnkept bounds the queries of each user that are remembered as read in a form
	// that is not kept, and maxUnkeptUsers these users: all of them take 2 MiB at most.
	maxUnkept      = 256
	maxUnkeptUsers = 256
)

// unkept remembers what was read only in a form that is not kept, such as a table, so
// that no error claims that it was never read. It is in memory only: all that it is
// for is the wording of an error. It is safe for concurrent use; a flood of one user's
// queries pushes out nobody else's.
type unkept struct {
	seed  maphash.Seed
	mu    sync.Mutex
	users map[string]*unkeptQueries
}

// unkeptQueries are hashes of a user's queries, and a ring in which the oldest is overwritten.
type unkeptQueries struct {
	known map[uint64]bool
	ring  []uint64
	next  int
}

func newUnkept() *unkept {
	return &unkept{seed: maphash.MakeSeed(), users: map[string]*unkeptQueries{}}
}

// add notes that a query was answered in a form that is not kept.
func (u *unkept) add(q *query.Query) {
	hash := u.hash(q)
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.users[q.User]
	if of == nil {
		u.makeRoomLocked()
		of = &unkeptQueries{known: map[uint64]bool{}}
		u.users[q.User] = of
	}
	if of.known[hash] {
		return
	}
	of.known[hash] = true
	if len(of.ring) < maxUnkept {
		of.ring = append(of.ring, hash)
		return
	}
	delete(of.known, of.ring[of.next])
	of.ring[of.next] = hash
	of.next = (of.next + 1) % maxUnkept
}

// makeRoomLocked forgets some user where there are too many.
func (u *unkept) makeRoomLocked() {
	for user := range u.users {
		if len(u.users) < maxUnkeptUsers {
			return
		}
		delete(u.users, user)
	}
}

// has reports whether add has noted the query, whatever form is asked for now.
func (u *unkept) has(q *query.Query) bool {
	hash := u.hash(q)
	u.mu.Lock()
	defer u.mu.Unlock()
	of := u.users[q.User]
	return of != nil && of.known[hash]
}

func (u *unkept) hash(q *query.Query) uint64 {
	type asked struct {
		resource                        schema.GroupVersionResource
		namespace, name, labels, fields string
	}
	return maphash.Comparable(u.seed, asked{q.Resource, q.Namespace, q.Name, q.Labels, q.Fields})
}
