package identity

import (
	"math"

	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// maxPerUser bounds how many tokens of one user are known. A service account has
	// one for each pod on the node, which is renewed about once an hour: 250 pods of
	// one account have some 6,000 a day, of which all but 250 are not used any more.
	maxPerUser = 1000
	// maxTokens bounds how many are known in all.
	maxTokens = 4096
	// spare is which part of a bound is made free at once, so that not every new token
	// costs a look at all of them.
	spare = 16
)

// item is a token as package quota sees it.
type item = quota.Item[hash]

// evictLocked makes room after a token of this user was added. A user who has too
// many loses its own, those first that were not used for the longest time. Where
// all users together have too many, package quota determines who loses.
func (t *Tokens) evictLocked(key string) {
	if t.byUser[key] > maxPerUser {
		t.dropLocked(quota.Excess(most(maxPerUser-maxPerUser/spare), t.itemsLocked(func(r *record) bool { return r.key == key })))
	}
	if len(t.tokens) > maxTokens {
		t.dropLocked(quota.Excess(most(maxTokens-maxTokens/spare), t.itemsLocked(func(*record) bool { return true })))
	}
}

// most is a bound in number only.
func most(n int) quota.Bounds { return quota.Bounds{Count: n, Bytes: math.MaxInt64} }

// itemsLocked returns the tokens that are wanted.
func (t *Tokens) itemsLocked(wanted func(*record) bool) []item {
	var items []item
	for h, r := range t.tokens {
		if wanted(r) {
			items = append(items, item{Key: h, User: r.key, Last: r.used.Load()})
		}
	}
	return items
}

func (t *Tokens) dropLocked(items []item) {
	for _, i := range items {
		t.removeLocked(i.Key)
	}
}
