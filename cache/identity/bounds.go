package identity

import (
	"cmp"
	"slices"
)

const (
	// maxPerUser bounds how many tokens of one user are known. A service account has
	// one for each pod on the node, which is renewed about once an hour: 250 pods of
	// one account have some 6,000 a day, of which all but 250 are not used any more.
	maxPerUser = 1000
	// maxTokens bounds how many are known in all.
	maxTokens = 4096
	// evictedShare is which part of a user's tokens goes at once, so that the next
	// ones cost nothing.
	evictedShare = 8
)

// evictLocked makes room after a token of this user was added. A user who has too
// many loses its own, those first that were not used for the longest time. Where
// all users together have too many, the tenant with the most loses, so that nobody
// pushes another's token out.
func (t *Tokens) evictLocked(key string) {
	for t.byUser[key] > maxPerUser {
		t.evictUserLocked(key)
	}
	for len(t.tokens) > maxTokens {
		t.evictUserLocked(t.largestLocked())
	}
}

// largestLocked returns the user with the most tokens of the tenant with the most.
// Of several it is the one who has used none of theirs for the longest time.
func (t *Tokens) largestLocked() string {
	tenants, lastUsed, names := map[string]int{}, map[string]int64{}, map[string]string{}
	for _, r := range t.tokens {
		names[r.key] = r.user.tenant()
		tenants[names[r.key]]++
		lastUsed[r.key] = max(lastUsed[r.key], r.used.Load())
	}
	largest := ""
	for key, n := range t.byUser {
		if largest == "" {
			largest = key
			continue
		}
		order := tenants[names[key]] - tenants[names[largest]]
		if order == 0 {
			order = n - t.byUser[largest]
		}
		if order > 0 || order == 0 && lastUsed[key] < lastUsed[largest] {
			largest = key
		}
	}
	return largest
}

// evictUserLocked forgets the tokens that a user has not used for the longest time.
func (t *Tokens) evictUserLocked(key string) {
	var all []hash
	for h, r := range t.tokens {
		if r.key == key {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b hash) int { return cmp.Compare(t.tokens[a].used.Load(), t.tokens[b].used.Load()) })
	for _, h := range all[:min(len(all), max(1, len(all)/evictedShare))] {
		t.removeLocked(h)
	}
}
