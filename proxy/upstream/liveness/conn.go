package liveness

import (
	"context"
	"net"
	"sync"
	"time"
)

// Conn is one TCP connection to an apiserver. It detects that the apiserver is unresponsive:
// a response is pending, and for Timeouts.Loss not one byte has arrived. A response may take
// any time, so the connection is pinged after Timeouts.pingAfter without a byte, and only the
// answer to the ping has to arrive in time. Any byte counts: on a slow link that answer may
// wait behind megabytes of a list. During large uploads the other side's acknowledgements
// count, too, because the ping waits behind the upload.
//
// Without HTTP/2 there is no ping. Silence on such a connection is not enough to close it; a
// probe on another connection decides.
type Conn struct {
	net.Conn
	timeouts Timeouts
	conns    *Conns
	owner    *Transport      // nil: it will be upgraded, and is not monitored
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	backlog  func() (acked uint64, waiting bool)

	mu           sync.Mutex
	waiting      int       // requests whose response is pending
	strict       int       // of these, strict ones: see requestStarted
	idleStreams  int       // streams that may be silent for long: watches, followed logs
	used         bool      // it has carried a request
	waitingSince time.Time // zero: no response is pending
	lastRead     time.Time // time of the last byte; zero: none. The TCP handshake does not count
	received     int64     // bytes
	lastAck      time.Time // time of the last acknowledgement of a backlog
	acked        uint64    // bytes, at sampled
	sampled      time.Time
	http2        pinger // nil: HTTP/1.1, or not known yet
	pinging      bool
	pinged       time.Time   // or probed
	timer        *time.Timer // nil: no response is pending, and no stream open
	due          time.Time   // of timer
	cause        error       // why it was closed; nil: it was not
}

// newConn returns a Conn for conn, which belongs to owner.
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

// Close closes the connection, and ends its monitoring.
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

// closeWith closes the connection; its reads and writes return cause.
func (c *Conn) closeWith(cause error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	c.mu.Unlock()
	c.Close()
}

// requestStarted records that a response is pending since a time. strict means that silence
// closes the connection even if it cannot be pinged.
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

// requestDone undoes requestStarted.
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

// addIdleStreams changes the number of open streams without a pending response.
func (c *Conn) addIdleStreams(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return
	}
	c.idleStreams += n
	c.armLocked(time.Now())
}

// attach records that the connection carries a request, and its pinger, or nil.
func (c *Conn) attach(http2 pinger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = true
	if http2 != nil {
		c.http2 = http2
	}
}

// bytesRead returns how many bytes were received.
func (c *Conn) bytesRead() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received
}

// established reports whether the connection has carried a request, and is open.
func (c *Conn) established() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used && c.ctx.Err() == nil
}

// idle reports whether the connection carries no request, and is not about to. A new
// connection is about to, unless all is over.
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

// lastActivity returns the time of the last activity, and whether silence closes the connection
// while a response is pending.
func (c *Conn) lastActivity() (at time.Time, judged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return latest(c.lastRead, c.lastAck), c.http2 != nil || c.strict > 0
}

// ping pings the connection, unless it was active after since, the time from which another
// connection with a pending response has been silent.
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
	go func() { // it may block behind writes; Close ends it
		_ = conn.Ping(c.ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ctx.Err() == nil {
			c.pinging = false
			c.stopWaitingLocked()
		}
	}()
}
