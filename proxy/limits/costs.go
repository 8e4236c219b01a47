package limits

import (
	"sync"
	"time"
)

// Costs bounds how many connections to the apiservers may be used up: by each tenant, or, while
// nobody knows a caller's tenant, by each user, which is the connection's other end then.
// It is safe for concurrent use.
type Costs struct {
	burst float64
	rate  float64 // a second

	mu    sync.Mutex
	spent map[user]spent // of those that may have spent something
	sweep int            // the size at which spent is searched for those that have not
}

// spent is what was spent at a time.
type spent struct {
	n  float64
	at time.Time
}

// NewCosts returns Costs of burst connections at once, and rate more a second.
func NewCosts(burst, rate float64) *Costs {
	return &Costs{burst: burst, rate: rate, spent: map[user]spent{}}
}

// Spend adds n connections, or gives them back if n is negative. It returns false, and adds none,
// if whoever has this share has spent all that it may.
func (c *Costs) Spend(by *Share, n int) bool {
	who := by.user
	if who.tenant != "" {
		who.name = ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	before := c.atLocked(who, now)
	if n >= 0 && before+1 > c.burst {
		return false
	}
	if n != 0 {
		c.sweepLocked(now)
		c.spent[who] = spent{max(0, before+float64(n)), now}
	}
	return true
}

func (c *Costs) atLocked(who user, now time.Time) float64 {
	s := c.spent[who]
	return max(0, s.n-c.rate*now.Sub(s.at).Seconds())
}

// sweepLocked forgets those that have spent nothing, when there are twice as many as were left
// the last time.
func (c *Costs) sweepLocked(now time.Time) {
	if len(c.spent) < c.sweep {
		return
	}
	for who := range c.spent {
		if c.atLocked(who, now) == 0 {
			delete(c.spent, who)
		}
	}
	c.sweep = 2*len(c.spent) + 16
}
