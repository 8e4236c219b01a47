package access

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// maxBegin is how many bytes a connection may send before its first request has arrived: a
// handshake with as many certificates as servertls accepts, and a header. crypto/tls alone would
// collect 256 KiB of an unfinished message for as long as a handshake may take.
const maxBegin = 48 << 10

var errBegin = errors.New("the client has sent more than a handshake and the header of a request")

// limitedConn is counted until it is closed, even after an upgrade.
type limitedConn struct {
	*net.TCPConn
	of     *Listener
	once   sync.Once
	begun  atomic.Bool
	unread int // of maxBegin; for one goroutine, which reads until the connection has begun
}

// Read fails if too many bytes have come before ConnState says that the connection has begun.
func (c *limitedConn) Read(p []byte) (int, error) {
	if c.begun.Load() {
		return c.TCPConn.Read(p)
	}
	if c.unread == 0 {
		return 0, errBegin
	}
	n, err := c.TCPConn.Read(p[:min(len(p), c.unread)])
	c.unread -= n
	return n, err
}

func (c *limitedConn) Close() error {
	c.once.Do(func() { c.of.open.Add(-1); c.of.budget.open.Add(-1) })
	return c.TCPConn.Close()
}

// ConnState is the http.Server.ConnState of a server with a Listener. net/http calls it when it has
// read the header of a connection's first request, or the preface of HTTP/2, whose frames have
// a limit of their own.
func ConnState(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if c, ok := conn.(*limitedConn); ok && state == http.StateActive {
		c.begun.Store(true)
	}
}
