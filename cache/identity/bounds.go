package identity

import (
	"math"

	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// maxPerUser bounds the tokens of one user. A service account has one for each pod on
	// the node, renewed about once an hour: 250 pods of one account have about 6,000 a day, of
	// which only 250 are still in use.
	maxPerUser = 1000
	// maxTokens bounds the tokens of all users.
	maxTokens = 4096
	// slack is the fraction (1/16) of a bound that is freed at once, so that not every new
	// token requires a scan of all of them.
	slack = 16
)

// item is a token, for package quota.
type item = quota.Item[hash]

// evictLocked enforces the bounds after a token of a user was added. A user with too many
// loses its least recently used ones. If all users together have too many, package quota
// selects those to drop.
func (t *Tokens) evictLocked(key string) {
	if t.byUser[key] > maxPerUser {
		t.dropLocked(quota.Excess(countLimit(maxPerUser-maxPerUser/slack), t.itemsLocked(func(r *record) bool { return r.key == key })))
	}
	if len(t.tokens) > maxTokens {
		t.dropLocked(quota.Excess(countLimit(maxTokens-maxTokens/slack), t.itemsLocked(func(*record) bool { return true })))
	}
}

// countLimit bounds the number only.
func countLimit(n int) quota.Bounds { return quota.Bounds{Count: n, Bytes: math.MaxInt64} }

// itemsLocked returns the selected tokens.
func (t *Tokens) itemsLocked(selected func(*record) bool) []item {
	var items []item
	for h, r := range t.tokens {
		if selected(r) {
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
