// Package confirm decides which answers of an apiserver the hub asks for again while the cloud
// is there, so that what was revoked there does not outlive a loss: whose a bearer token is
// (package identity), what was allowed (package review), and what users may read (package cache).
//
// # Which are asked for
//
// One at a time is asked for, the longest unasked first, and tenants take turns. What was not asked
// for Within an unbroken presence of the cloud is forgotten: too many share the turns, its token
// is not in memory since a restart of the hub, or it is not used any more. So without the cloud
// only an answer is good that is at most Within older than the loss.
//
// # What does not count
//
// Time without the cloud, or without the hub, has nothing forgotten. Neither does an apiserver that
// cannot answer: only its refusal does.
package confirm

import (
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// After is the age from which an answer is asked for again. A node with 30 pods has some 30
	// tokens in use, and so asks three times a minute: a thousand nodes, 50 times a second.
	After = 10 * time.Minute
	// Within is the age at which it is forgotten. With two questions in each Pause, 300 tokens
	// and 300 reviews are asked for within it: more than a kubelet has by default (110 pods).
	Within = 30 * time.Minute
	// Pause is the mean time between two turns while something waits. It bounds a node's
	// questions to 20 a minute, also when the cloud is back and all wait.
	Pause = 6 * time.Second
	// RightsPause is Pause for what users may read, of which a node has more: it asks at most 40 times a
	// minute, for 400 rights within After, and for 800 until one is forgotten where a question takes no time. Most are never asked for: who lists
	// or watches again has them confirmed.
	RightsPause = 1500 * time.Millisecond
	// Idle is the mean time between two turns while nothing waits.
	Idle = time.Minute
	// Again is after how long a right that was refused is asked for once more: only the second refusal counts. An
	// apiserver that has just started refuses for a moment, as one does while a RoleBinding is being replaced.
	Again = time.Minute
)

// Item is one answer of an apiserver.
type Item[K any] struct {
	Key   K
	User  string    // whom it is about; see quota.Tenant
	Asked time.Time // when it was last asked for, with whatever result
	// Wanted is false for what is not asked for again: it is not in use, or cannot be asked for.
	Wanted bool
}

// Next returns what to ask for now, if ok, and what to forget. since is when the cloud came.
func Next[K any](items []Item[K], since, now time.Time) (next K, ok bool, forget []K) {
	turns := make(map[string]time.Time) // the last of each tenant
	for i := range items {
		if tenant := quota.Tenant(items[i].User); items[i].Asked.After(turns[tenant]) {
			turns[tenant] = items[i].Asked
		}
	}
	var best *Item[K]
	for i := range items {
		switch item := &items[i]; {
		case now.Sub(later(item.Asked, since)) >= Within:
			forget = append(forget, item.Key)
		case !item.Wanted || now.Sub(item.Asked) < After:
		case best == nil || before(item, best, turns):
			best = item
		}
	}
	if best == nil {
		return next, false, forget
	}
	return best.Key, true, forget
}

// before reports whether a is asked for before b.
func before[K any](a, b *Item[K], turns map[string]time.Time) bool {
	if order := turns[quota.Tenant(a.User)].Compare(turns[quota.Tenant(b.User)]); order != 0 {
		return order < 0
	}
	return a.Asked.Before(b.Asked)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
