package access

import (
	"context"
	"errors"
	"time"
)

// Refusals are cheap, but an HTTP/2 connection carries tens of thousands a second. A peer that has more refused than it
// may owes the rest, and nothing of what it sends is read until that is paid.
const (
	// A peer may have refusalsBurst requests refused at once, and refusalsRate more a second: about 1 %
	// of a core. client-go waits for a second after a refusal, and then for longer.
	refusalsBurst = 200
	refusalsRate  = 100
	// requestBytes is the least that a request takes, in HTTP/2 with its headers indexed, about: what
	// comes from a peer that owes is paid as requests of this size, of which any may be refused.
	requestBytes = 64
	// longestDebt is how long a peer may owe. The connections of one that owes for longer are closed when they send something.
	longestDebt = 10 * time.Second
)

var errOwes = errors.New("too many requests of this client are refused")

// Refused counts a request with this context as refused. A client that has many refused is slowed
// down, unless it is one of the node's own programs.
func Refused(ctx context.Context) {
	client, ok := ctx.Value(connKey{}).(*clientConn)
	if !ok {
		return
	}
	if conn, ok := client.Conn.(*limitedConn); ok {
		conn.refused()
	}
}

// refused counts a refusal for the connection's peer.
func (c *limitedConn) refused() {
	if c.isNode {
		return
	}
	refusals := c.of.budget.refusals
	refusals.Spend(c.peer, 1, longestDebt)
	if refusals.Wait(c.peer) > 0 && c.of.logLimit.allow(c.peer, time.Now()) {
		c.of.log.Warn("so many requests of a client are refused that the hub reads less from it; see why they are (edgehub_requests_total counts them by their code), and mend or end the client",
			"peer", c.peer, "remote", c.RemoteAddr())
	}
}

// pay waits until the peer owes nothing for n bytes, or fails if it owes too much.
func (c *limitedConn) pay(n int) error {
	refusals := c.of.budget.refusals
	if n == 0 || c.isNode || refusals.Wait(c.peer) == 0 {
		return nil
	}
	if !refusals.Spend(c.peer, float64(1+n/requestBytes), longestDebt) {
		c.of.refused.Inc()
		return errOwes
	}
	time.Sleep(refusals.Wait(c.peer))
	return nil
}
