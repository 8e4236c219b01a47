package liveness

import (
	"net"
	"sync"
	"time"
)

// Conn is one TCP connection to an apiserver. It knows what is pending on it, and since when
// nothing has arrived: see the package comment, and check.
type Conn struct {
	net.Conn
	timeouts Timeouts
	conns    *Conns
	owner    *Transport // nil: it will be upgraded, and is not monitored
	backlog  func() (acked uint64, waiting bool)

	mu           sync.Mutex
	closed       bool
	cause        error         // why it was closed, if it was unresponsive
	used         bool          // it has carried a request
	waiting      int           // pending responses and handshakes for which a client waits
	strict       int           // pending pings and handshakes: silence is then a loss
	asked        time.Time     // when the last of these began
	idleStreams  int           // streams that may be silent for long: watches, followed logs
	waitingSince time.Time     // zero: nothing is pending
	lastRead     time.Time     // time of the last byte; zero: none. The TCP handshake does not count
	received     int64         // bytes
	lastAck      time.Time     // time of the last acknowledgement of a backlog
	resumed      time.Time     // when a silence was last not counted because this process was starved
	voids        int           // how often, since the last byte
	late         time.Duration // by which checks have come too late since the silence began, added up
	acked        uint64        // bytes, at sampled
	sampled      time.Time
	timer        *time.Timer // nil: nothing is pending, and no stream open
	due          time.Time   // of timer
}

// pending is what requires bytes to arrive on a connection.
type pending struct{ waiting, strict int }

var (
	pendingResponse  = pending{waiting: 1}
	pendingHandshake = pending{waiting: 1, strict: 1}
	pendingPing      = pending{strict: 1}
)

// newConn returns a Conn for conn, which belongs to owner.
func newConn(conn net.Conn, cs *Conns, owner *Transport) *Conn {
	c := &Conn{Conn: conn, timeouts: cs.timeouts, conns: cs, owner: owner, backlog: cs.Network.Backlog(conn)}
	cs.add(c)
	return c
}

func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.conns.received.Add(int64(n))
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.heardLocked(&c.lastRead, time.Now())
		c.voids = 0
		c.received += int64(n)
	}
	if err != nil && c.cause != nil {
		err = c.cause
	}
	return n, err
}

func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.conns.sent.Add(int64(n))
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
	c.conns.remove(c)
	c.mu.Lock()
	c.closed = true
	c.stopTimerLocked()
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

// start records that p is pending since a time.
func (c *Conn) start(p pending, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.waitingSince.IsZero() {
		c.heardLocked(&c.waitingSince, since)
		c.acked, _ = c.backlog()
		c.sampled = now
	}
	c.waiting += p.waiting
	c.strict += p.strict
	if p.strict > 0 {
		c.asked = now
	}
	c.rearmLocked(now)
}

// done undoes start.
func (c *Conn) done(p pending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting -= p.waiting
	c.strict -= p.strict
	if c.waiting == 0 && c.strict == 0 {
		c.waitingSince = time.Time{}
	}
	c.rearmLocked(time.Now())
}

// handshakeDone records that the connection is established. From here on only the kernel
// monitors one that will be upgraded.
func (c *Conn) handshakeDone() {
	c.done(pendingHandshake)
	if c.owner == nil {
		c.conns.remove(c)
	}
}

// addIdleStreams changes the number of open streams without a pending response.
func (c *Conn) addIdleStreams(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idleStreams += n
	c.rearmLocked(time.Now())
}

func (c *Conn) rearmLocked(now time.Time) {
	if !c.closed {
		c.armLocked(now)
	}
}

// carry records that the connection carries a request.
func (c *Conn) carry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used = true
}

// connState is what others ask of a Conn.
type connState struct {
	used     bool      // it has carried a request
	received int64     // bytes
	active   time.Time // last activity
	strict   bool      // a ping or handshake is pending
	busy     bool      // a response is pending, or a stream open
}

func (c *Conn) state() connState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return connState{c.used, c.received, latest(c.lastRead, c.lastAck), c.strict > 0, c.waiting > 0 || c.idleStreams > 0}
}
