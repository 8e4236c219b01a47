package access

import (
	"sync/atomic"
	"time"

	"github.com/edgehub-io/edgehub/proxy/limits"
)

const (
	// A peer may have refusalsBurst requests refused at once, and refusalsRate more a second: about 1 %
	// of a core. client-go waits for a second after a refusal, and then for longer.
	refusalsBurst = 200
	refusalsRate  = 100
	// requestBytes is the least that a request takes, in HTTP/2 with its headers indexed, about: what
	// comes from a peer that owes is paid as requests of this size, of which any may be refused.
	requestBytes = 64
	// longestDebt is after which time a peer is served as before at the latest. The connections of one
	// that owes more are closed when they send something.
	longestDebt = 10 * time.Second
)

// debts slows peers down whose requests are refused: the refusals are cheap, but an HTTP/2 connection
// carries tens of thousands a second. A peer that has more refused than it may owes the rest, and
// nothing of what it sends is read until that is paid. It is safe for concurrent use.
type debts struct {
	refusals *limits.Costs[string]
	until    atomic.Int64 // when all is paid, in nanoseconds of Unix time
}

func newDebts() *debts {
	return &debts{refusals: limits.NewCosts[string](refusalsBurst, refusalsRate)}
}

// refuse counts a refusal, and reports whether the peer owes now.
func (d *debts) refuse(peer string) bool {
	wait := d.refusals.Owe(peer, 1, longestDebt)
	if wait == 0 {
		return false
	}
	paid := time.Now().Add(wait).UnixNano()
	for {
		until := d.until.Load()
		if until >= paid || d.until.CompareAndSwap(until, paid) {
			return true
		}
	}
}

// any returns false if nobody owes.
func (d *debts) any() bool {
	until := d.until.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// read returns how long n bytes from a peer have to wait: longestDebt if it owes too much.
func (d *debts) read(peer string, n int) time.Duration {
	if d.refusals.Owe(peer, 0, longestDebt) == 0 {
		return 0
	}
	return d.refusals.Owe(peer, float64(1+n/requestBytes), longestDebt)
}
