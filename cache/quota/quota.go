// Package quota shares among tenants what the hub has little of. [Excess] selects what to evict when a limit that all users share
// is exceeded: of cached views, discovery, issued tokens, spooled Events, and lists that are read page by page. [Turns] select
// what is asked for again, and a [Queue] whose work is next, a tenant after the other.
//
// # What is evicted
//
// Each of these has one bound, in number and in bytes, and users have no fixed limits below
// it: one user may use all that the others leave. When the bound is exceeded, items of the
// tenant that holds the most are evicted, until the rest is within the bound:
//
//   - A tenant is the node, all service accounts of one namespace, or any other user.
//     A user that may create one service account may create thousands; see [Tenant].
//   - "The most" is relative to a tenant's share. The node's share is three times that
//     of any other tenant, because many programs of the node act as the node.
//   - Of the users of this tenant, the one that holds the most is first.
//   - Of its items, the least recently used is first. Items in use, by an open watch for
//     example, come after all other items of the same user.
//   - Fixed items are never evicted: the kubelet's views. The tokens issued to the kubelet
//     have bounds of their own, so that no others displace them.
//
// So among the node and n other tenants, a tenant keeps what it holds as long as that is
// no more than one part in 3+n of the bound (the node: three), whatever the others do. A
// flood evicts only data of the tenant that sends it.
//
// # Identities
//
// A user is the key by which the cache knows a caller: [Node], or what
// identity.User.Key returns.
package quota

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Node is the node as a user.
const Node = "node"

// nodeShare is the node's share, in shares of other tenants: with it the node keeps half of
// everything while three others flood the hub.
const nodeShare = 3

// serviceAccounts begins the keys of service accounts. A namespace and a name follow,
// with a colon between them, and neither holds anything that a key quotes.
const serviceAccounts = `user:"system:serviceaccount:`

// Tenant returns whose share a user's data counts against: that of the namespace, for a
// service account, and else of the user alone. A tenant's name is that of no other user.
func Tenant(user string) string {
	account, ok := strings.CutPrefix(user, serviceAccounts)
	if !ok {
		return user
	}
	namespace, _, ok := strings.Cut(account, ":")
	if !ok {
		return user
	}
	return user[:len(serviceAccounts)+len(namespace)]
}

// Bounds are what all users may hold together.
type Bounds struct {
	Count int
	Bytes int64
}

// Exceeded reports whether a count and size exceed the bounds.
func (b Bounds) Exceeded(count int, bytes int64) bool { return count > b.Count || bytes > b.Bytes }

// Item is one thing that counts against the bounds.
type Item[K any] struct {
	Key   K
	User  string
	Bytes int64
	Last  int64 // when it was last used; of items of one user the lowest goes first
	InUse bool  // it goes after all others of its user
	Fixed bool  // it never goes
}

// load is a number of items, and their size.
type load struct{ count, bytes int64 }

func (l *load) add(count int64, bytes int64) { l.count, l.bytes = l.count+count, l.bytes+bytes }

func (l *load) of(byBytes bool) int64 {
	if byBytes {
		return l.bytes
	}
	return l.count
}

// tenant is what one tenant holds.
type tenant[K any] struct {
	load
	share  int64
	users  []*holding[K]
	queued int // how much may go
}

// holding is what one user holds.
type holding[K any] struct {
	load
	queue  []Item[K] // what may go
	sorted bool      // queue is in the order in which it goes
}

// Excess returns what has to go so that the rest is within the bounds, in this order.
// Where fixed items alone exceed them, all others go.
func Excess[K any](b Bounds, items []Item[K]) []Item[K] {
	count, bytes := len(items), int64(0)
	for i := range items {
		bytes += items[i].Bytes
	}
	if !b.Exceeded(count, bytes) {
		return nil
	}
	tenants := group(items)
	var excess []Item[K]
	for b.Exceeded(count, bytes) {
		t := largestTenant(tenants, bytes > b.Bytes)
		if t == nil {
			break
		}
		item := t.next(bytes > b.Bytes)
		count, bytes = count-1, bytes-item.Bytes
		excess = append(excess, item)
	}
	return excess
}

// group returns what each tenant holds. Tenants, and the users of each, are in the order
// of their names.
func group[K any](items []Item[K]) []*tenant[K] {
	byUser := map[string]*holding[K]{}
	for i := range items {
		item := &items[i]
		h := byUser[item.User]
		if h == nil {
			h = &holding[K]{}
			byUser[item.User] = h
		}
		h.add(1, item.Bytes)
		if !item.Fixed {
			h.queue = append(h.queue, *item)
		}
	}
	var tenants []*tenant[K]
	byName := map[string]*tenant[K]{}
	for _, user := range slices.Sorted(maps.Keys(byUser)) {
		h, name := byUser[user], Tenant(user)
		t := byName[name]
		if t == nil {
			t = &tenant[K]{share: shareOf(name)}
			byName[name] = t
			tenants = append(tenants, t)
		}
		t.add(h.count, h.bytes)
		t.users, t.queued = append(t.users, h), t.queued+len(h.queue)
	}
	return tenants
}

func shareOf(tenant string) int64 {
	if tenant == Node {
		return nodeShare
	}
	return 1
}

// largestTenant returns the tenant that holds the most relative to its share, of those
// from which something may go; nil if there is none.
func largestTenant[K any](tenants []*tenant[K], byBytes bool) (most *tenant[K]) {
	for _, t := range tenants {
		if t.queued > 0 && (most == nil || t.of(byBytes)*most.share > most.of(byBytes)*t.share) {
			most = t
		}
	}
	return most
}

// next takes out what goes first of a tenant from which something may go.
func (t *tenant[K]) next(byBytes bool) Item[K] {
	var most *holding[K]
	for _, h := range t.users {
		if len(h.queue) > 0 && (most == nil || h.of(byBytes) > most.of(byBytes)) {
			most = h
		}
	}
	item := most.next()
	t.add(-1, -item.Bytes)
	t.queued--
	return item
}

// next takes out what goes first.
func (h *holding[K]) next() Item[K] {
	if !h.sorted {
		slices.SortStableFunc(h.queue, func(a, b Item[K]) int {
			if a.InUse != b.InUse {
				if a.InUse {
					return 1
				}
				return -1
			}
			return cmp.Compare(a.Last, b.Last)
		})
		h.sorted = true
	}
	item := h.queue[0]
	h.queue = h.queue[1:]
	h.add(-1, -item.Bytes)
	return item
}
