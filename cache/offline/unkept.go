package offline

import (
	"hash/maphash"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
)

const (
	// maxUnkept bounds the queries of each user that are remembered, and maxUnkeptUsers the
	// users: together 512 KiB.
	maxUnkept      = 256
	maxUnkeptUsers = 256
)

// unkept remembers queries that were answered in a form that is not cached, such as a table, so
// that no error claims that they were never read. It serves only the wording of errors, and is in
// memory only. It is safe for concurrent use; many queries of one user do not displace those of
// others.
type unkept struct {
	seed  maphash.Seed
	mu    sync.Mutex
	users map[string]*lastQueries
}

// lastQueries are hashes of a user's last queries. The oldest is overwritten first.
type lastQueries struct {
	hashes [maxUnkept]uint64
	next   int
}

func newUnkept() *unkept {
	return &unkept{seed: maphash.MakeSeed(), users: map[string]*lastQueries{}}
}

func (u *unkept) add(q *query.Query) {
	hash := u.hash(q)
	u.mu.Lock()
	defer u.mu.Unlock()
	last := u.users[q.User]
	if last == nil {
		u.makeRoomLocked()
		last = new(lastQueries)
		u.users[q.User] = last
	}
	if !slices.Contains(last.hashes[:], hash) {
		last.hashes[last.next] = hash
		last.next = (last.next + 1) % maxUnkept
	}
}

// makeRoomLocked forgets any user if there are too many.
func (u *unkept) makeRoomLocked() {
	for user := range u.users {
		if len(u.users) < maxUnkeptUsers {
			return
		}
		delete(u.users, user)
	}
}

// has reports whether add was called for the query, in any representation.
func (u *unkept) has(q *query.Query) bool {
	hash := u.hash(q)
	u.mu.Lock()
	defer u.mu.Unlock()
	last := u.users[q.User]
	return last != nil && slices.Contains(last.hashes[:], hash)
}

func (u *unkept) hash(q *query.Query) uint64 {
	type parts struct {
		resource                        schema.GroupVersionResource
		namespace, name, labels, fields string
	}
	return maphash.Comparable(u.seed, parts{q.Resource, q.Namespace, q.Name, q.Labels, q.Fields})
}
