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

// evictLocked enforces the bounds after a token of a user was added. A user with too many
// loses its least recently used ones. If all users together have too many, package quota
// selects those to drop.
func (t *Tokens) evictLocked(key string) {
	if t.byUser[key] > maxPerUser {
		t.reduceLocked(maxPerUser, func(r *record) bool { return r.key == key })
	}
	if len(t.tokens) > maxTokens {
		t.reduceLocked(maxTokens, func(*record) bool { return true })
	}
}

// reduceLocked reduces the number of the selected tokens to a bound, less its slack.
func (t *Tokens) reduceLocked(bound int, selected func(*record) bool) {
	var items []quota.Item[string]
	for h, r := range t.tokens {
		if selected(r) {
			items = append(items, quota.Item[string]{Key: h, User: r.key, Last: r.used})
		}
	}
	for _, item := range quota.Excess(quota.Bounds{Count: bound - bound/slack, Bytes: math.MaxInt64}, items) {
		t.removeLocked(item.Key)
	}
}
