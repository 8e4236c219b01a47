package liveness

import (
	"context"
	"net"
	"sync"
	"time"
)

// Conn is one TCP connection to an apiserver. It notices when the apiserver has
// fallen silent: something is owed on it, and for Limits.Loss not one byte has
// come. How long an answer takes says nothing, so a line that was silent for
// Limits.pingAfter is pinged, and what is owed then is no more than the ping's
// answer. Any byte counts: on a narrow link that answer may wait behind
// megabytes of a list. Where much is being sent, the other side's
// acknowledgements count as well, since the ping itself waits behind it.
//
// Without HTTP/2 there is no ping, and a line is never judged by its own
// silence while a request waits on it; the apiserver is, by a probe beside it.
type Conn struct {
	net.Conn
	timeouts Timeouts
	conns    *Conns
	owner    *Transport      // nil: it will be upgraded, and is not watched
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	backlog  func() (acked uint64, waiting bool)

	mu           sync.Mutex
	waiting      int       // requests whose answer is owed
	strict       int       // of these, those that bound the silence without a ping
	idleStreams  int       // streams that may be silent for long: watches, followed logs
	used         bool      // a request has been on it
	waitingSince time.Time // zero: nothing is owed
	lastRead     time.Time // of the last byte; zero: none. That TCP connects proves nothing
	received     int64     // bytes
	lastAck      time.Time // of the last acknowledgement of a backlog, or before it
	acked        uint64    // bytes, at sampled
	sampled      time.Time
	http2        pinger // nil: HTTP/1.1, or not known yet
	pinging      bool
	pinged       time.Time   // or probed
	timer        *time.Timer // nil: nothing is owed nor open
	due          time.Time   // of timer
	cause        error       // why it was given up; nil: it was not
}

// newConn takes over conn, which is for owner.
func newConn(conn net.Conn, cs *Conns, owner *Transport) *Conn {
	c := &Conn{Conn: conn, timeouts: cs.timeouts, conns: cs, owner: owner, backlog: cs.Network.Backlog(conn)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	cs.add(c)
	return c
}

func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.lastRead = time.Now()
		c.received += int64(n)
	}
	if err != nil && c.cause != nil {
		err = c.cause
	}
	return n, err
}

func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cause != nil {
			err = c.cause
		}
	}
	return n, err
}

// Close drops the connection. Nothing is watched any more.
func (c *Conn) Close() error {
	c.cancel()
	c.conns.remove(c)
	c.mu.Lock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.waiting, c.strict, c.idleStreams, c.pinging = 0, 0, 0, false
	c.mu.Unlock()
	return c.Conn.Close()
}

// closeWith closes the line; whoever reads from it or writes to it gets cause.
func (c *Conn) closeWith(cause error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.mu.Unlock()
	c.Close()
}

// requestStarted notes that an answer is owed from since on. strict means that the line
// answers for its silence though it cannot be pinged.
func (c *Conn) requestStarted(since time.Time, strict bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.waiting++
	if strict {
		c.strict++
		c.pinged = time.Now()
	}
	c.startWaitingLocked(since)
	c.armLocked(time.Now())
}

// requestDone takes one await back.
func (c *Conn) requestDone(strict bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.waiting--
	if strict {
		c.strict--
	}
	c.stopWaitingLocked()
}

// addIdleStreams notes that one more stream, or with -1 one less, is open on which
// nothing is owed.
func (c *Conn) addIdleStreams(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.idleStreams += n
	c.armLocked(time.Now())
}

// attach notes that the line has got a request, and how it is pinged, or nil.
func (c *Conn) attach(http2 pinger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = true
	if http2 != nil {
		c.http2 = http2
	}
}

// bytesRead is how many bytes have come.
func (c *Conn) bytesRead() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received
}

// established reports whether the line has carried a request, and is open.
func (c *Conn) established() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used && c.ctx.Err() == nil
}

// idle reports whether no request is on the line, nor about to be. One that has
// carried none yet is about to, unless all is over.
func (c *Conn) idle(allIsOver bool) bool {
	c.mu.Lock()
	conn, busy := c.http2, c.waiting > 0 || c.idleStreams > 0 || !c.used && !allIsOver
	c.mu.Unlock()
	if busy || conn == nil {
		return !busy
	}
	now := conn.State() // takes HTTP/2's locks
	return now.StreamsActive == 0 && now.StreamsReserved == 0 && now.StreamsPending == 0
}

// lastActivity returns when the last sign of life came, and whether the line is judged
// by its own silence once it owes something.
func (c *Conn) lastActivity() (at time.Time, judged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return latest(c.lastRead, c.lastAck), c.http2 != nil || c.strict > 0
}

// ping pings the line, unless it has shown life after since: another one that
// owes something has been silent from then on.
func (c *Conn) ping(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil || c.http2 == nil || c.pinging || latest(c.lastRead, c.lastAck).After(since) {
		return
	}
	c.startWaitingLocked(since)
	c.pingLocked()
	c.armLocked(time.Now())
}

func (c *Conn) startWaitingLocked(since time.Time) {
	if c.waitingSince.IsZero() {
		c.waitingSince = since
		c.acked, _ = c.backlog()
		c.sampled = time.Now()
	}
}

func (c *Conn) stopWaitingLocked() {
	if c.waiting == 0 && !c.pinging {
		c.waitingSince = time.Time{}
	}
	c.armLocked(time.Now())
}

func (c *Conn) pingLocked() {
	conn := c.http2
	c.pinging, c.pinged = true, time.Now()
	go func() { // it may wait for what is being written; Close ends it
		_ = conn.Ping(c.ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ctx.Err() == nil {
			c.pinging = false
			c.stopWaitingLocked()
		}
	}()
}
