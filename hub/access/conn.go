package access

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// maxBegin is how many bytes a connection may send before its first request has arrived, and
// between two requests: a handshake with as many certificates as servertls accepts, and a header.
// crypto/tls alone would collect 256 KiB of a handshake message that does not end, for as long as
// the connection may be idle.
const maxBegin = 48 << 10

var errBegin = errors.New("the client has sent more than a handshake and the header of a request")

// limitedConn is counted until it is closed, even after an upgrade.
type limitedConn struct {
	*net.TCPConn
	of     *Listener
	once   sync.Once
	active atomic.Bool  // a request is under way
	unread atomic.Int64 // of maxBegin, while none is
}

// Read fails if too many bytes have come while no request is under way, as ConnState says.
func (c *limitedConn) Read(p []byte) (int, error) {
	if c.active.Load() {
		return c.TCPConn.Read(p)
	}
	left := c.unread.Load()
	if left <= 0 {
		return 0, errBegin
	}
	n, err := c.TCPConn.Read(p[:min(int64(len(p)), left)])
	c.unread.Add(-int64(n))
	return n, err
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.of.open.Add(-1); c.of.budget.open.Add(-1) })
	return c.TCPConn.Close()
}

// ConnState is the http.Server.ConnState of a server with a Listener. net/http says that a
// connection is active when it has read the header of a request, and idle when all are answered.
func ConnState(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		c.active.Store(true)
	case http.StateIdle:
		c.unread.Store(maxBegin)
		c.active.Store(false)
	}
}
