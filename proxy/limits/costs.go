package limits

import (
	"sync"
	"time"
)

// Costs bounds what each of many callers costs: so much at once, and so much more a second. It is
// safe for concurrent use.
type Costs[K comparable] struct {
	burst float64
	rate  float64 // a second

	mu    sync.Mutex
	spent map[K]spent // of those that may have spent something
	sweep int         // the size at which spent is searched for those that have not
}

// spent is what was spent at a time.
type spent struct {
	n  float64
	at time.Time
}

// NewCosts returns Costs of burst at once, and rate more a second, for each K.
func NewCosts[K comparable](burst, rate float64) *Costs[K] {
	return &Costs[K]{burst: burst, rate: rate, spent: map[K]spent{}}
}

// Spend adds n, or gives it back if it is negative. It returns false, and adds nothing, if who has
// spent all that it may.
func (c *Costs[K]) Spend(who K, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	before := c.atLocked(who, now)
	if n >= 0 && before+1 > c.burst {
		return false
	}
	if n != 0 {
		c.setLocked(who, before+float64(n), now)
	}
	return true
}

// Owe adds n, even if who has spent all that it may, but no more than it may spend within longest. It
// returns after which time who may spend again; 0 is now.
func (c *Costs[K]) Owe(who K, n float64, longest time.Duration) (wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	owed := c.atLocked(who, now)
	if n > 0 {
		owed = min(owed+n, c.burst+c.rate*longest.Seconds())
		c.setLocked(who, owed, now)
	}
	return time.Duration(max(0, owed-c.burst) / c.rate * float64(time.Second))
}

func (c *Costs[K]) setLocked(who K, n float64, now time.Time) {
	c.sweepLocked(now)
	c.spent[who] = spent{max(0, n), now}
}

func (c *Costs[K]) atLocked(who K, now time.Time) float64 {
	s := c.spent[who]
	return max(0, s.n-c.rate*now.Sub(s.at).Seconds())
}

// sweepLocked forgets those that have spent nothing, when there are twice as many as were left
// the last time.
func (c *Costs[K]) sweepLocked(now time.Time) {
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
