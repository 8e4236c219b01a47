package limits

import (
	"sync"
	"time"
)

// Costs bounds what each of many callers costs: so much at once, and so much more a second. It is
// safe for concurrent use.
type Costs struct {
	burst float64
	rate  float64 // a second

	mu    sync.Mutex
	spent map[string]spent // by caller, of those that may have spent something
	sweep int              // the size at which spent is searched for those that have not
}

// spent is what was spent at a time.
type spent struct {
	n  float64
	at time.Time
}

// NewCosts returns Costs of burst at once, and rate more a second, for each caller.
func NewCosts(burst, rate float64) *Costs {
	return &Costs{burst: burst, rate: rate, spent: map[string]spent{}}
}

// Wait returns after which time who may spend one more; 0 is now.
func (c *Costs) Wait(who string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waitLocked(c.spentLocked(who, time.Now()))
}

// Spend adds n, or gives it back if it is negative. It returns false, and adds nothing, if who has to
// wait for longer than longest already.
func (c *Costs) Spend(who string, n float64, longest time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	before := c.spentLocked(who, now)
	if n > 0 && c.waitLocked(before) > longest {
		return false
	}
	c.sweepLocked(now)
	c.spent[who] = spent{max(0, before+n), now}
	return true
}

func (c *Costs) waitLocked(n float64) time.Duration {
	return time.Duration(max(0, n+1-c.burst) / c.rate * float64(time.Second))
}

func (c *Costs) spentLocked(who string, now time.Time) float64 {
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
		if c.spentLocked(who, now) == 0 {
			delete(c.spent, who)
		}
	}
	c.sweep = 2*len(c.spent) + 16
}
