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
// all users together have too many, the tenant with the most loses, and of its
// users the one with the most, so that nobody pushes another's token out.
func (t *Tokens) evictLocked(key string) {
	if t.byUser[key] > maxPerUser {
		own := t.itemsLocked(func(r *record) string { return r.key })[key]
		t.dropLocked(quota.Excess(most(maxPerUser-maxPerUser/spare), own))
	}
	if len(t.tokens) <= maxTokens {
		return
	}
	tenants := t.itemsLocked(func(r *record) string { return r.user.tenant() })
	var all []item
	for tenant, own := range tenants {
		for _, i := range own {
			i.User = tenant
			all = append(all, i)
		}
	}
	loss := map[string]int{}
	for _, i := range quota.Excess(most(maxTokens-maxTokens/spare), all) {
		loss[i.User]++
	}
	for tenant, n := range loss {
		t.dropLocked(quota.Excess(most(len(tenants[tenant])-n), tenants[tenant]))
	}
}

// most is a bound in number only.
func most(n int) quota.Bounds { return quota.Bounds{Count: n, Bytes: math.MaxInt64} }

// itemsLocked returns all tokens in groups.
func (t *Tokens) itemsLocked(group func(*record) string) map[string][]item {
	groups := map[string][]item{}
	for h, r := range t.tokens {
		g := group(r)
		groups[g] = append(groups[g], item{Key: h, User: r.key, Last: r.used.Load()})
	}
	return groups
}

func (t *Tokens) dropLocked(items []item) {
	for _, i := range items {
		t.removeLocked(i.Key)
	}
}
