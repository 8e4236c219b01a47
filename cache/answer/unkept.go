package answer

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/edgehub-io/edgehub/cache/query"
)

// maxUnkept bounds the queries that are remembered: 32 KiB.
const maxUnkept = 4096

// unkept remembers queries that were answered in a form that is not cached, such as a table, so
// that no error claims that they were never read. It serves only the wording of errors, and is in
// memory only: each query has one place, which the next query of that place takes. It is safe for
// concurrent use.
type unkept struct {
	seed   maphash.Seed
	hashes [maxUnkept]atomic.Uint64
}

func newUnkept() *unkept { return &unkept{seed: maphash.MakeSeed()} }

func (u *unkept) add(q *query.Query) {
	hash := u.hash(q)
	u.hashes[hash%maxUnkept].Store(hash)
}

// has reports whether add was called for the query, in any representation.
func (u *unkept) has(q *query.Query) bool {
	hash := u.hash(q)
	return u.hashes[hash%maxUnkept].Load() == hash
}

func (u *unkept) hash(q *query.Query) uint64 {
	type parts struct {
		of                              query.UserResource
		namespace, name, labels, fields string
	}
	return maphash.Comparable(u.seed, parts{q.UserResource(), q.Namespace, q.Name, q.Labels, q.Fields})
}
