// Package quota decides whose data goes when something that all users share is full:
// cached views, discovery, issued tokens, spooled events, lists that are read page by
// page. The policy is the same for all of them.
//
// # Policy
//
// Each of these has an overall bound, in number and in bytes. Nobody has a fixed limit
// below it, so one user may take all that the others leave. When the bound is exceeded,
// the user that holds the most loses first, until the rest fits:
//
//   - "The most" is relative to a user's share. The node's share is three times that of
//     any other user, because many programs of the node act as the node.
//   - What that user used least recently goes first. What is in use, by an open watch
//     say, goes after everything else of the same user.
//   - What is fixed never goes. These are the kubelet's views. The tokens issued to the
//     kubelet have bounds of their own, so that they lose to no others.
//
// So among the node and n other users, a user keeps what it holds as long as that is no
// more than one part in 3+n of the bound (the node: three), whatever the others do. A
// flood pushes out the data of the user that sends it.
//
// # Identities
//
// A user is the opaque name by which the cache knows a caller. [Node] is the node.
package quota

import (
	"cmp"
	"slices"
)

// Node is the user that stands for the node itself.
const Node = "node"

// nodeShare is how many times the share of another user the node's is: enough that
// the node keeps half of everything while three others flood the hub.
const nodeShare = 3

// Bounds are what all users may hold together.
type Bounds struct {
	Count int
	Bytes int64
}

// Exceeded reports whether so much is too much.
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

// holding is what one user holds.
type holding[K any] struct {
	share  int64
	count  int64
	bytes  int64
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
	holdings := group(items)
	var excess []Item[K]
	for b.Exceeded(count, bytes) {
		h := largest(holdings, bytes > b.Bytes)
		if h == nil {
			break
		}
		item := h.next()
		count, bytes = count-1, bytes-item.Bytes
		excess = append(excess, item)
	}
	return excess
}

// group returns what each user holds, in the order of the users' names.
func group[K any](items []Item[K]) []*holding[K] {
	byUser := map[string]*holding[K]{}
	var users []string
	for i := range items {
		item := &items[i]
		h := byUser[item.User]
		if h == nil {
			h = &holding[K]{share: shareOf(item.User)}
			byUser[item.User] = h
			users = append(users, item.User)
		}
		h.count, h.bytes = h.count+1, h.bytes+item.Bytes
		if !item.Fixed {
			h.queue = append(h.queue, *item)
		}
	}
	slices.Sort(users)
	holdings := make([]*holding[K], len(users))
	for i, user := range users {
		holdings[i] = byUser[user]
	}
	return holdings
}

func shareOf(user string) int64 {
	if user == Node {
		return nodeShare
	}
	return 1
}

// largest returns the holding that is the largest relative to its owner's share, of
// those from which something may go; nil if there is none.
func largest[K any](holdings []*holding[K], byBytes bool) (most *holding[K]) {
	for _, h := range holdings {
		if len(h.queue) > 0 && (most == nil || h.load(byBytes)*most.share > most.load(byBytes)*h.share) {
			most = h
		}
	}
	return most
}

func (h *holding[K]) load(byBytes bool) int64 {
	if byBytes {
		return h.bytes
	}
	return h.count
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
	h.count, h.bytes = h.count-1, h.bytes-item.Bytes
	return item
}
