package liveness

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Conns are the connections of one apiserver, those being opened among them.
// Upgraded ones (exec, port-forward) are not: on them either side may be silent
// for hours, and only the kernel knows what was delivered.
type Conns struct {
	server   apiserver
	timeouts Timeouts
	log      *slog.Logger
	Network  Network
	Peers    []*Conns       // of all apiservers, these among them; set before the first request
	probes   chan time.Time // to the prober: a probe is wanted; holds one

	mu            sync.Mutex
	all           map[*Conn]struct{}
	dialCtx       context.Context // ends when the apiserver is lost
	cancelDials   context.CancelCauseFunc
	lastIdleProbe time.Time // for lines that cannot be pinged
}

// apiserver is the one that lines lead to.
type apiserver interface {
	// Down returns why the apiserver cannot be reached, or nil.
	Down() error
	// Unresponsive notes that the apiserver cannot be reached since the path to it is silent.
	Unresponsive(cause error)
	// ConnectFailed notes a failure to connect that is no silence.
	ConnectFailed(err error)
}

// NewConns returns the connections to server, of which there are none yet. It calls server
// back without holding a lock.
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

// AnyEstablished reports whether there is a connection that has carried a request.
func (cs *Conns) AnyEstablished() bool {
	return slices.ContainsFunc(cs.list(), (*Conn).established)
}

// dialContext returns the context of attempts to connect that begin now.
func (cs *Conns) dialContext() context.Context {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.dialCtx
}

// idleProbeDue reports whether a probe is due for lines with nothing but idle streams
// that cannot be pinged, and returns when the last one was, this one if it is due.
// One is enough for all: without HTTP/2 each watch has a line of its own.
func (cs *Conns) idleProbeDue(now time.Time, every time.Duration) (last time.Time, due bool) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if due = now.Sub(cs.lastIdleProbe) >= every; due {
		cs.lastIdleProbe = now
	}
	return cs.lastIdleProbe, due
}

// CloseAll gives up all connections and all attempts to connect.
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

// unresponsive gives c up, on which the apiserver has owed something and sent nothing
// since that time, and with it the apiserver, unless that has shown life on
// another line in the meantime.
func (cs *Conns) unresponsive(c *Conn, since time.Time) {
	cause := &UnresponsiveError{time.Since(since)}
	if cs.activeSince(c, since) {
		cs.log.Debug("connection to the apiserver is dropped; others are alive", "err", cause)
	} else {
		cs.server.Unresponsive(cause)
	}
	c.closeWith(cause)
}

// activeSince reports whether a line other than c has shown life after since.
func (cs *Conns) activeSince(c *Conn, since time.Time) bool {
	for _, other := range cs.list() {
		if at, _ := other.lastActivity(); other != c && at.After(since) {
			return true
		}
	}
	return false
}

// probeAll asks all apiservers for a sign of life: this one has owed something and
// sent nothing since that time, so that the way to all of them may be cut. A
// request that then moves on to the next one need not wait as long again.
func (cs *Conns) probeAll(since time.Time) {
	cs.probe(since)
	cs.probePeers(since)
}

// pingAll is askAll where an attempt to connect has been silent. Connections that
// stand are pinged, since whoever opens many may be given no more; none is opened
// beside the one that is waited for.
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

// Probes returns the channel of the probes that silent connections ask for: each value
// is when the silence began.
func (cs *Conns) Probes() <-chan time.Time { return cs.probes }

// probe pings every line that has shown no life after since. Where no line answers
// for itself, Run's probe is told to find out.
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
	default: // one is under way, or about to be
	}
}
