package access

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/edgehub-io/edgehub/proxy/limits"
)

// maxBegin is how many bytes a connection may send before its first request has arrived, and
// between two requests: a handshake with as many certificates as servertls accepts, and a header.
// crypto/tls alone would collect 256 KiB of a handshake message that does not end, for as long as
// the connection may be idle.
const maxBegin = 48 << 10

const (
	// plainBegin is maxBegin where there is no handshake, and a larger header comes from a Budget's pool.
	plainBegin = 16 << 10
	// largePool is how many bytes all connections of a Budget may send beyond that, largeMost how many one may,
	// and largePart how many are taken at a time.
	largePool = 16 << 20
	largeMost = 256 << 10
	largePart = 16 << 10
)

var errBegin = errors.New("the client has sent more than a handshake and the header of a request, and gets nothing of the pool for larger ones")

// limitedConn is a connection of a Listener. It is counted until it is closed, even after an upgrade.
type limitedConn struct {
	*net.TCPConn
	of     *Listener
	isNode bool            // it is the node's
	peer   string          // whose it is otherwise
	shares []*limits.Share // of those that are not the node's; all three are as they were when it was accepted

	accepted time.Time
	begun    chan struct{} // closed when the first request has arrived, or the connection is closed
	begins   sync.Once

	closed atomic.Bool
	active atomic.Bool  // a request is under way
	unread atomic.Int64 // of maxBegin, while none is
	turn   atomic.Bool  // it has one of the turns, from a Read to the next, or until a request has arrived

	mu    sync.Mutex
	large []*limits.Share // parts of the budget's pool
}

// enter reports whether the peer may have another connection, which counts for nobody else then.
func (c *limitedConn) enter(peer string) bool {
	c.leave()
	for _, shares := range c.of.shares {
		share, ok := shares.Enter(peer, "")
		if !ok {
			return false
		}
		c.shares = append(c.shares, share)
	}
	return true
}

func (c *limitedConn) leave() {
	for _, share := range c.shares {
		share.Leave()
	}
	c.shares = nil
}

func newConn(tcp *net.TCPConn, of *Listener) *limitedConn {
	c := &limitedConn{TCPConn: tcp, of: of, accepted: time.Now(), begun: make(chan struct{})}
	c.unread.Store(maxBegin)
	of.mu.Lock()
	defer of.mu.Unlock()
	of.mute[c] = struct{}{}
	return c
}

// Read fails if too many bytes have come while no request is under way, as ConnState says, or if
// too many requests of the peer are refused. It returns when it is the peer's turn.
func (c *limitedConn) Read(p []byte) (int, error) {
	c.endTurn()
	if c.active.Load() {
		n, err := c.TCPConn.Read(p)
		if owes := c.pay(n); owes != nil {
			return 0, owes
		}
		return n, err
	}
	left := c.unread.Load()
	if left <= 0 && c.takePart() {
		left = c.unread.Add(largePart)
	}
	if left <= 0 {
		c.refused()
		return 0, errBegin
	}
	n, err := c.TCPConn.Read(p[:min(int64(len(p)), left)])
	c.unread.Add(-int64(n))
	if owes := c.pay(n); owes != nil {
		return 0, owes
	}
	c.takeTurn(n)
	return n, err
}

// takePart takes a part of the budget's pool until the request ends that begins with it. The node's own programs are
// one peer there.
func (c *limitedConn) takePart() bool {
	if c.of.budget.large == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed.Load() || len(c.large) >= largeMost/largePart {
		return false
	}
	share, ok := c.of.budget.large.Enter(c.peer, "")
	if !ok {
		if c.of.logLimit.allow("large headers of "+c.peer, time.Now()) {
			c.of.log.Warn("a request was refused: this client has its third of the memory that the hub has for headers of more than 16 KiB, those of exec under way among them; end some of these",
				"peer", c.peer, "remote", c.RemoteAddr())
		}
		return false
	}
	c.large = append(c.large, share)
	return true
}

// begin has the connection wait for a request: nothing of the one before is left.
func (c *limitedConn) begin(isTLS bool) {
	c.mu.Lock()
	c.leaveLargeLocked()
	c.mu.Unlock()
	if isTLS || c.of.budget.large == nil {
		c.unread.Store(maxBegin)
	} else {
		c.unread.Store(plainBegin)
	}
}

func (c *limitedConn) leaveLargeLocked() {
	for _, share := range c.large {
		share.Leave()
	}
	c.large = nil
}

// takeTurn waits for one of the turns if it has read something. The node's need none.
func (c *limitedConn) takeTurn(n int) {
	if n == 0 || c.isNode {
		return
	}
	_ = c.of.budget.turns.Acquire(context.Background(), c.peer) // it fails only if the context ends
	c.turn.Store(true)
	if c.closed.Load() { // while it waited: nobody may read again
		c.endTurn()
	}
}

func (c *limitedConn) endTurn() {
	if c.turn.CompareAndSwap(true, false) {
		c.of.budget.turns.Release()
	}
}

// endMute ends the wait for the first request: it has arrived, or none will.
func (c *limitedConn) endMute() {
	c.begins.Do(func() {
		close(c.begun)
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		delete(c.of.mute, c)
	})
}

func (c *limitedConn) Close() error {
	c.endMute()
	if c.closed.CompareAndSwap(false, true) {
		c.of.open.Add(-1)
		c.of.budget.open.Add(-1)
		c.leave()
		c.mu.Lock()
		c.leaveLargeLocked()
		c.mu.Unlock()
	}
	c.endTurn()
	return c.TCPConn.Close()
}

// ConnState is the http.Server.ConnState of a server with a Listener. net/http says that a
// connection is active when it has read the header of a request, and idle when all are answered.
func ConnState(conn net.Conn, state http.ConnState) {
	secure, isTLS := conn.(*tls.Conn)
	if isTLS {
		conn = secure.NetConn()
	}
	c, ok := conn.(*limitedConn)
	if !ok {
		return
	}
	switch state {
	case http.StateNew:
		c.begin(isTLS)
	case http.StateActive:
		c.endMute()
		c.active.Store(true)
		c.endTurn()
	case http.StateIdle:
		c.begin(isTLS)
		c.active.Store(false)
	}
}
