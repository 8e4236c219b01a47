package liveness

import (
	"context"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Conns are the connections to one apiserver, including those being opened, but not upgraded
// ones (exec, port-forward): on these either side may be silent for hours, and only the
// kernel knows what was delivered.
type Conns struct {
	server   apiserver
	address  *url.URL
	timeouts Timeouts
	log      *slog.Logger
	Network  Network
	Peers    []*Conns // of all apiservers, including this one; set before the first request

	sent, received atomic.Int64 // bytes, on all connections so far

	mu          sync.Mutex
	all         map[*Conn]struct{}
	newest      *Transport      // but for upgrades
	dialCtx     context.Context // ends when the apiserver is lost
	cancelDials context.CancelCauseFunc
}

// Bytes returns how many bytes were sent and received on all connections so far, TLS included.
func (cs *Conns) Bytes() (sent, received int64) { return cs.sent.Load(), cs.received.Load() }

// apiserver is the owner of Conns.
type apiserver interface {
	// Down returns why the apiserver cannot be reached, or nil.
	Down() error
	// Unresponsive is called when the apiserver is unresponsive on all connections.
	Unresponsive(cause error)
	// Starved is called when silence for this long does not count because this process, or the
	// machine, got too little CPU, or was suspended.
	Starved(silence time.Duration)
	// ConnectFailed is called after a failure to connect other than silence.
	ConnectFailed(err error)
}

// NewConns returns an empty Conns for server, at address. It calls server without holding a lock.
func NewConns(server apiserver, address *url.URL, limits Timeouts, log *slog.Logger) *Conns {
	cs := &Conns{server: server, address: address, timeouts: limits, log: log, Network: tcp(), all: map[*Conn]struct{}{}}
	cs.dialCtx, cs.cancelDials = context.WithCancelCause(context.Background())
	return cs
}

func (cs *Conns) add(c *Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all[c] = struct{}{}
}

func (cs *Conns) remove(c *Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.all, c)
}

func (cs *Conns) list() []*Conn {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return slices.Collect(maps.Keys(cs.all))
}

// AnyEstablished reports whether an open connection has carried a request.
func (cs *Conns) AnyEstablished() bool {
	return slices.ContainsFunc(cs.list(), func(c *Conn) bool { return c.state().used })
}

// dialContext returns the context for dials that begin now.
func (cs *Conns) dialContext() context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.dialCtx
}

// CloseAll closes all connections, and ends all dials.
func (cs *Conns) CloseAll(cause error) {
	cs.mu.Lock()
	abandon := cs.cancelDials
	cs.dialCtx, cs.cancelDials = context.WithCancelCause(context.Background())
	cs.mu.Unlock()
	abandon(cause)
	for _, c := range cs.list() {
		c.closeWith(cause)
	}
}

// unresponsive closes c, on which no byte has arrived since a time although a ping or handshake
// is pending. The apiserver is unresponsive, too, unless another connection was active since.
func (cs *Conns) unresponsive(c *Conn, since time.Time) {
	cause := &UnresponsiveError{time.Since(since)}
	if cs.activeSince(c, since) {
		cs.log.Debug("connection to the apiserver is dropped; others are alive", "err", cause)
	} else {
		cs.server.Unresponsive(cause)
	}
	c.closeWith(cause)
}

// activeSince reports whether a connection other than c was active after since.
func (cs *Conns) activeSince(c *Conn, since time.Time) bool {
	return slices.ContainsFunc(cs.list(), func(other *Conn) bool { return other != c && other.state().active.After(since) })
}

// pingEvery pings all apiservers: this one has been silent since a time although a response
// is pending, so the link to all of them may be down. A request that moves on to the next
// apiserver then does not have to wait as long again.
func (cs *Conns) pingEvery(since time.Time) {
	cs.pingOpen(since) // no new one here: a load balancer may limit connections per client
	for _, peer := range cs.Peers {
		if peer != cs && peer.server.Down() == nil && !peer.pingOpen(since) {
			peer.newestTransport().ping(since)
		}
	}
}

// pingOpen pings the apiserver on each transport with a connection that was not active after
// since. It reports whether there are connections.
func (cs *Conns) pingOpen(since time.Time) (open bool) {
	for _, c := range cs.list() {
		open = true
		if now := c.state(); c.owner != nil && !now.strict && !now.active.After(since) {
			c.owner.ping(since)
		}
	}
	return open
}

func (cs *Conns) newestTransport() *Transport {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.newest
}
