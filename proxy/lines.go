package proxy

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// lines are the connections of one apiserver, those being opened among them.
// Upgraded ones (exec, port-forward) are not: on them either side may be silent
// for hours, and only the kernel knows what was delivered.
type lines struct {
	server apiserver
	limits timeouts
	log    *slog.Logger
	net    network
	peers  []*lines       // of all apiservers, these among them; set before the first request
	asked  chan time.Time // to the prober: a probe is wanted; holds one

	mu         sync.Mutex
	all        map[*line]struct{}
	dialing    context.Context // ends when the apiserver is lost
	abandon    context.CancelCauseFunc
	idleProbed time.Time // for lines that cannot be pinged
}

// apiserver is the one that lines lead to.
type apiserver interface {
	// down returns why the apiserver cannot be reached, or nil.
	down() error
	// lost notes that the apiserver cannot be reached since the path to it is silent.
	lost(cause error)
	// unconnected notes a failure to connect that is no silence.
	unconnected(err error)
}

func newLines(server apiserver, limits timeouts, log *slog.Logger) *lines {
	ls := &lines{server: server, limits: limits, log: log, net: tcp(), asked: make(chan time.Time, 1), all: map[*line]struct{}{}}
	ls.dialing, ls.abandon = context.WithCancelCause(context.Background())
	return ls
}

func (ls *lines) add(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all[l] = struct{}{}
}

func (ls *lines) remove(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.all, l)
}

func (ls *lines) snapshot() []*line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return slices.Collect(maps.Keys(ls.all))
}

// anyStands reports whether there is a connection that has carried a request.
func (ls *lines) anyStands() bool {
	return slices.ContainsFunc(ls.snapshot(), (*line).stands)
}

// attempts returns the context of attempts to connect that begin now.
func (ls *lines) attempts() context.Context {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.dialing
}

// probeIdle reports whether a probe is due for lines with nothing but idle streams
// that cannot be pinged, and returns when the last one was, this one if it is due.
// One is enough for all: without HTTP/2 each watch has a line of its own.
func (ls *lines) probeIdle(now time.Time, every time.Duration) (last time.Time, due bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if due = now.Sub(ls.idleProbed) >= every; due {
		ls.idleProbed = now
	}
	return ls.idleProbed, due
}

// drop gives up all connections and all attempts to connect.
func (ls *lines) drop(cause error) {
	ls.mu.Lock()
	abandon := ls.abandon
	ls.dialing, ls.abandon = context.WithCancelCause(context.Background())
	ls.mu.Unlock()
	abandon(cause)
	for _, l := range ls.snapshot() {
		l.giveUp(cause)
	}
}

// silent gives l up, on which the apiserver has owed something and sent nothing
// since that time, and with it the apiserver, unless that has shown life on
// another line in the meantime.
func (ls *lines) silent(l *line, since time.Time) {
	cause := &silentError{time.Since(since)}
	if ls.alive(l, since) {
		ls.log.Debug("connection to the apiserver is dropped; others are alive", "err", cause)
	} else {
		ls.server.lost(cause)
	}
	l.giveUp(cause)
}

// alive reports whether a line other than l has shown life after since.
func (ls *lines) alive(l *line, since time.Time) bool {
	for _, other := range ls.snapshot() {
		if at, _ := other.sign(); other != l && at.After(since) {
			return true
		}
	}
	return false
}

// askAll asks all apiservers for a sign of life: this one has owed something and
// sent nothing since that time, so that the way to all of them may be cut. A
// request that then moves on to the next one need not wait as long again.
func (ls *lines) askAll(since time.Time) {
	ls.ask(since)
	ls.askOthers(since)
}

// suspectAll is askAll where an attempt to connect has been silent. Connections that
// stand are pinged, since whoever opens many may be given no more; none is opened
// beside the one that is waited for.
func (ls *lines) suspectAll(since time.Time) {
	for _, l := range ls.snapshot() {
		l.suspect(since)
	}
	ls.askOthers(since)
}

func (ls *lines) askOthers(since time.Time) {
	for _, peer := range ls.peers {
		if peer != ls {
			peer.ask(since)
		}
	}
}

// ask pings every line that has shown no life after since. Where no line answers
// for itself, Run's probe is told to find out.
func (ls *lines) ask(since time.Time) {
	if ls.server.down() != nil {
		return // it is being probed already
	}
	answered := false
	for _, l := range ls.snapshot() {
		at, judged := l.sign()
		answered = answered || judged || at.After(since)
		l.suspect(since)
	}
	if answered {
		return
	}
	select {
	case ls.asked <- since:
	default: // one is under way, or about to be
	}
}
