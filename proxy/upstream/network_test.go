package upstream_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// fakeNetwork is the way to one apiserver, for a synctest bubble: in memory, late,
// narrow and interrupted as a test wants it.
type fakeNetwork struct {
	delay time.Duration // each way
	rate  int           // bytes a second each way, over all connections; 0: no bound

	mu       sync.Mutex
	changed  sync.Cond
	hole     bool // packets are swallowed, and sent again later
	stopped  bool // the apiserver's process: its kernel goes on
	refusing bool
	free     [2]time.Time // when each direction has sent all that it was given
	waiting  []*fakeConn  // to be accepted
	conns    []*fakeConn  // the clients' ends
	dials    int
	closed   bool
}

func newFakeNetwork(delay time.Duration, rate int) *fakeNetwork {
	n := &fakeNetwork{delay: delay, rate: rate}
	n.changed.L = &n.mu
	return n
}

// set changes the network under its lock.
func (n *fakeNetwork) set(change func(n *fakeNetwork)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
	n.changed.Broadcast()
}

func (n *fakeNetwork) network() liveness.Network {
	return liveness.Network{Dial: n.dial, Backlog: func(conn net.Conn) func() (uint64, bool) { return conn.(*fakeConn).backlog }}
}

// dial takes a round trip. Where packets are swallowed it is tried again after 1,
// 3, 7 … seconds, as Linux does.
func (n *fakeNetwork) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.set(func(n *fakeNetwork) { n.dials++ })
	for again := time.Second; ; again *= 2 {
		swallowed := false
		n.set(func(n *fakeNetwork) { swallowed = n.hole })
		wait := 2 * n.delay
		if swallowed {
			wait = again
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !swallowed {
			break
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case n.refusing || n.closed:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	up, down := &stream{net: n, way: 0}, &stream{net: n, way: 1}
	client, server := &fakeConn{net: n, in: down, out: up}, &fakeConn{net: n, in: up, out: down, isServer: true}
	n.waiting, n.conns = append(n.waiting, server), append(n.conns, client)
	n.changed.Broadcast()
	return client, nil
}

// Accept, Close and Addr make it the apiserver's net.Listener.
func (n *fakeNetwork) Accept() (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for (len(n.waiting) == 0 || n.stopped) && !n.closed {
		n.changed.Wait()
	}
	if n.closed {
		return nil, net.ErrClosed
	}
	c := n.waiting[0]
	n.waiting = n.waiting[1:]
	return c, nil
}

func (n *fakeNetwork) Close() error {
	n.set(func(n *fakeNetwork) { n.closed = true })
	return nil
}

func (n *fakeNetwork) Addr() net.Addr { return &net.TCPAddr{} }

// stream is one direction of a connection.
type stream struct {
	net     *fakeNetwork
	way     int
	chunks  []chunk
	sent    int // bytes accepted
	arrived int // of them, in the other side's kernel
	ended   bool
}

type chunk struct {
	data []byte
	due  time.Time
}

// arrivedLocked counts what has arrived by now.
func (s *stream) arrivedLocked() {
	if s.net.hole {
		return
	}
	now, arrived := time.Now(), 0
	for _, c := range s.chunks {
		if !c.due.After(now) {
			arrived += len(c.data)
		}
	}
	s.arrived = max(s.arrived, s.sent-s.queuedLocked()+arrived)
}

func (s *stream) queuedLocked() int {
	n := 0
	for _, c := range s.chunks {
		n += len(c.data)
	}
	return n
}

// fakeConn is one end of a connection.
type fakeConn struct {
	net      *fakeNetwork
	in, out  *stream
	isServer bool
	closed   bool
	dead     bool // a gateway on the way has forgotten the connection
	reset    bool // which is seen by who writes first
	readBy   time.Time
}

func (c *fakeConn) Read(p []byte) (int, error) {
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case !c.readBy.IsZero() && !now.Before(c.readBy):
			return 0, os.ErrDeadlineExceeded
		case n.hole || c.dead || c.isServer && n.stopped:
		case len(c.in.chunks) > 0 && !c.in.chunks[0].due.After(now):
			first := &c.in.chunks[0]
			k := copy(p, first.data)
			if first.data = first.data[k:]; len(first.data) == 0 {
				c.in.chunks = c.in.chunks[1:]
			}
			c.in.arrived = max(c.in.arrived, c.in.sent-c.in.queuedLocked())
			n.changed.Broadcast()
			return k, nil
		case len(c.in.chunks) == 0 && c.in.ended:
			return 0, io.EOF
		}
		n.changed.Wait()
	}
}

// Write leaves all to the kernel, and does not wait: HTTP/2 would hold a mutex
// meanwhile, and a goroutine that waits for a mutex stops a bubble's clock.
func (c *fakeConn) Write(p []byte) (int, error) {
	n := c.net
	n.mu.Lock()
	defer n.mu.Unlock()
	written := 0
	for len(p) > 0 {
		if c.closed {
			return written, net.ErrClosed
		}
		if c.reset {
			return written, &net.OpError{Op: "write", Net: "tcp", Err: syscall.ECONNRESET}
		}
		if c.isServer && n.stopped {
			n.changed.Wait()
			continue
		}
		part := p[:min(len(p), 1400)]
		p, written = p[len(part):], written+len(part)
		at := time.Now()
		if n.free[c.out.way].After(at) {
			at = n.free[c.out.way]
		}
		if n.rate > 0 {
			at = at.Add(time.Duration(len(part)) * time.Second / time.Duration(n.rate))
			n.free[c.out.way] = at
		}
		at = at.Add(n.delay)
		c.out.chunks = append(c.out.chunks, chunk{slices.Clone(part), at})
		c.out.sent += len(part)
		time.AfterFunc(time.Until(at), func() { n.set(func(*fakeNetwork) {}) })
	}
	return written, nil
}

func (c *fakeConn) backlog() (acked uint64, waiting bool) {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	c.out.arrivedLocked()
	return uint64(c.out.arrived), c.out.arrived < c.out.sent
}

func (c *fakeConn) Close() error {
	c.net.set(func(*fakeNetwork) { c.closed, c.out.ended = true, true })
	return nil
}

func (c *fakeConn) SetReadDeadline(t time.Time) error {
	c.net.set(func(*fakeNetwork) { c.readBy = t })
	if !t.IsZero() {
		time.AfterFunc(time.Until(t), func() { c.net.set(func(*fakeNetwork) {}) })
	}
	return nil
}

func (c *fakeConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *fakeConn) SetWriteDeadline(time.Time) error { return nil }
func (c *fakeConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *fakeConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
