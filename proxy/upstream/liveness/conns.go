package liveness

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Conns are the connections to one apiserver, including those being opened, but not upgraded
// ones (exec, port-forward): on these either side may be silent for hours, and only the
// kernel knows what was delivered.
type Conns struct {
	server   apiserver
	timeouts Timeouts
	log      *slog.Logger
	Network  Network
	Peers    []*Conns       // of all apiservers, including this one; set before the first request
	probes   chan time.Time // requests of a probe; holds one

	mu            sync.Mutex
	all           map[*Conn]struct{}
	dialCtx       context.Context // ends when the apiserver is lost
	cancelDials   context.CancelCauseFunc
	lastIdleProbe time.Time // for connections that cannot be pinged
}

// apiserver is the owner of Conns.
type apiserver interface {
	// Down returns why the apiserver cannot be reached, or nil.
	Down() error
	// Unresponsive is called when the apiserver is unresponsive on all connections.
	Unresponsive(cause error)
	// ConnectFailed is called after a failure to connect other than silence.
	ConnectFailed(err error)
}

// NewConns returns an empty Conns for server. It calls server without holding a lock.
func NewConns(server apiserver, limits Timeouts, log *slog.Logger) *Conns {
	cs := &Conns{server: server, timeouts: limits, log: log, Network: tcp(), probes: make(chan time.Time, 1), all: map[*Conn]struct{}{}}
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
	return slices.ContainsFunc(cs.list(), (*Conn).established)
}

// dialContext returns the context for dials that begin now.
func (cs *Conns) dialContext() context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.dialCtx
}

// idleProbeDue reports whether a probe is due for connections that have only idle streams and
// cannot be pinged, and returns the time of the last one. One probe is enough for all:
// without HTTP/2 each watch has a connection of its own.
func (cs *Conns) idleProbeDue(now time.Time, every time.Duration) (last time.Time, due bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if due = now.Sub(cs.lastIdleProbe) >= every; due {
		cs.lastIdleProbe = now
	}
	return cs.lastIdleProbe, due
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

// unresponsive closes c, on which a response is pending and no byte has arrived since a time.
// The apiserver is unresponsive, too, unless another connection was active since.
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
	for _, other := range cs.list() {
		if at, _ := other.lastActivity(); other != c && at.After(since) {
			return true
		}
	}
	return false
}

// probeAll probes all apiservers: this one has been silent since a time although a response
// is pending, so the link to all of them may be down. A request that moves on to the next
// apiserver then does not have to wait as long again.
func (cs *Conns) probeAll(since time.Time) {
	cs.probe(since)
	cs.probePeers(since)
}

// pingAll is probeAll for a dial that has been silent. It pings open connections, and opens no
// further one to this apiserver: a load balancer may limit connections per client.
func (cs *Conns) pingAll(since time.Time) {
	for _, c := range cs.list() {
		c.ping(since)
	}
	cs.probePeers(since)
}

func (cs *Conns) probePeers(since time.Time) {
	for _, peer := range cs.Peers {
		if peer != cs {
			peer.probe(since)
		}
	}
}

// Probes returns the channel of probes requested by silent connections. Each value is the
// time when the silence began.
func (cs *Conns) Probes() <-chan time.Time { return cs.probes }

// probe pings every connection that was not active after since. If none of them can be judged
// by its own silence, it requests a probe.
func (cs *Conns) probe(since time.Time) {
	if cs.server.Down() != nil {
		return // it is being probed already
	}
	answered := false
	for _, c := range cs.list() {
		at, judged := c.lastActivity()
		answered = answered || judged || at.After(since)
		c.ping(since)
	}
	if answered {
		return
	}
	select {
	case cs.probes <- since:
	default: // one is requested already
	}
}
