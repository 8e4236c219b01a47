package identity

import (
	"math"

	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// maxTokens bounds the tokens of all users that are known, and those that could not be reviewed. A
	// service account has one for each pod on the node, renewed about once an hour: 250 pods of one
	// account have about 6,000 a day, of which only 250 are still in use.
	maxTokens = 4096
	// slack is the fraction (1/16) of a bound that is freed at once, so that not every new
	// token requires a scan of all of them.
	slack = 16
)

// evictLocked enforces the bound after tokens were added: package quota selects those to drop.
func (t *Tokens) evictLocked() {
	if len(t.tokens) <= maxTokens {
		return
	}
	items := make([]quota.Item[string], 0, len(t.tokens))
	for h, r := range t.tokens {
		items = append(items, quota.Item[string]{Key: h, User: r.key, Last: r.used})
	}
	for _, item := range quota.Excess(quota.Bounds{Count: maxTokens - maxTokens/slack, Bytes: math.MaxInt64}, items) {
		t.removeLocked(item.Key)
	}
}
