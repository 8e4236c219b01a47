package proxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// line is one TCP connection to an apiserver. It notices when the apiserver has
// fallen silent: something is owed on it, and for Limits.Loss not one byte has
// come. How long an answer takes says nothing, so a line that was silent for
// Limits.pingAfter is pinged, and what is owed then is no more than the ping's
// answer. Any byte counts: on a narrow link that answer may wait behind
// megabytes of a list. Where much is being sent, the other side's
// acknowledgements count as well, since the ping itself waits behind it.
//
// Without HTTP/2 there is no ping, and a line is never judged by its own
// silence while a request waits on it; the apiserver is, by a probe beside it.
type line struct {
	net.Conn
	limits  timeouts
	lines   *lines
	owner   *transport      // nil: it will be upgraded, and is not watched
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	backlog func() (acked uint64, waiting bool)

	mu        sync.Mutex
	waiting   int       // requests whose answer is owed
	strict    int       // of these, those that bound the silence without a ping
	open      int       // streams that may be silent for long: watches, followed logs
	carried   bool      // a request has been on it
	owedSince time.Time // zero: nothing is owed
	read      time.Time // of the last byte; zero: none. That TCP connects proves nothing
	received  int64     // bytes
	moved     time.Time // of the last acknowledgement of a backlog, or before it
	acked     uint64    // bytes, at sampled
	sampled   time.Time
	http2     pinger // nil: HTTP/1.1, or not known yet
	pinging   bool
	pinged    time.Time   // or probed
	timer     *time.Timer // nil: nothing is owed nor open
	due       time.Time   // of timer
	cause     error       // why it was given up; nil: it was not
}

// newLine takes over conn, which is for owner.
func newLine(conn net.Conn, ls *lines, owner *transport) *line {
	l := &line{Conn: conn, limits: ls.limits, lines: ls, owner: owner, backlog: ls.net.backlog(conn)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	ls.add(l)
	return l
}

func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 {
		l.read = time.Now()
		l.received += int64(n)
	}
	if err != nil && l.cause != nil {
		err = l.cause
	}
	return n, err
}

func (l *line) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.cause != nil {
			err = l.cause
		}
	}
	return n, err
}

// Close drops the connection. Nothing is watched any more.
func (l *line) Close() error {
	l.cancel()
	l.lines.remove(l)
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.waiting, l.strict, l.open, l.pinging = 0, 0, 0, false
	l.mu.Unlock()
	return l.Conn.Close()
}

// giveUp closes the line; whoever reads from it or writes to it gets cause.
func (l *line) giveUp(cause error) {
	l.mu.Lock()
	if l.cause == nil {
		l.cause = cause
	}
	l.mu.Unlock()
	l.Close()
}

// await notes that an answer is owed from since on. strict means that the line
// answers for its silence though it cannot be pinged.
func (l *line) await(since time.Time, strict bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	l.waiting++
	if strict {
		l.strict++
		l.pinged = time.Now()
	}
	l.oweLocked(since)
	l.armLocked(time.Now())
}

// settle takes one await back.
func (l *line) settle(strict bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	l.waiting--
	if strict {
		l.strict--
	}
	l.paidLocked()
}

// stream notes that one more stream, or with -1 one less, is open on which
// nothing is owed.
func (l *line) stream(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return
	}
	l.open += n
	l.armLocked(time.Now())
}

// carries notes that the line has got a request, and how it is pinged, or nil.
func (l *line) carries(http2 pinger) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.carried = true
	if http2 != nil {
		l.http2 = http2
	}
}

// arrived is how many bytes have come.
func (l *line) arrived() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.received
}

// stands reports whether the line has carried a request, and is open.
func (l *line) stands() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.carried && l.ctx.Err() == nil
}

// unused reports whether no request is on the line, nor about to be. One that has
// carried none yet is about to, unless all is over.
func (l *line) unused(allIsOver bool) bool {
	l.mu.Lock()
	conn, busy := l.http2, l.waiting > 0 || l.open > 0 || !l.carried && !allIsOver
	l.mu.Unlock()
	if busy || conn == nil {
		return !busy
	}
	now := conn.State() // takes HTTP/2's locks
	return now.StreamsActive == 0 && now.StreamsReserved == 0 && now.StreamsPending == 0
}

// sign returns when the last sign of life came, and whether the line is judged
// by its own silence once it owes something.
func (l *line) sign() (at time.Time, judged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return latest(l.read, l.moved), l.http2 != nil || l.strict > 0
}

// suspect pings the line, unless it has shown life after since: another one that
// owes something has been silent from then on.
func (l *line) suspect(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil || l.http2 == nil || l.pinging || latest(l.read, l.moved).After(since) {
		return
	}
	l.oweLocked(since)
	l.pingLocked()
	l.armLocked(time.Now())
}

func (l *line) oweLocked(since time.Time) {
	if l.owedSince.IsZero() {
		l.owedSince = since
		l.acked, _ = l.backlog()
		l.sampled = time.Now()
	}
}

func (l *line) paidLocked() {
	if l.waiting == 0 && !l.pinging {
		l.owedSince = time.Time{}
	}
	l.armLocked(time.Now())
}

func (l *line) pingLocked() {
	conn := l.http2
	l.pinging, l.pinged = true, time.Now()
	go func() { // it may wait for what is being written; Close ends it
		_ = conn.Ping(l.ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ctx.Err() == nil {
			l.pinging = false
			l.paidLocked()
		}
	}()
}
