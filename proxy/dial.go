package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// dialer opens connections to one apiserver. Each step of that, TCP's handshake
// and TLS's, may take Limits.Loss without a sign of life, however long the whole
// takes. Attempts end when the apiserver is found lost on another connection.
type dialer struct {
	lines  *lines
	owner  *transport // nil: connections that will be upgraded, and are not watched
	config *tls.Config
}

// network is what connections are made of: TCP, but in tests.
type network struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// backlog returns a function that says how many bytes of what was sent on conn
	// the other side has acknowledged since its beginning, and whether it has yet
	// to acknowledge some.
	backlog func(conn net.Conn) func() (acked uint64, waiting bool)
}

func tcp() network {
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: ackTimeout / 2, Count: 2},
		Control:         func(_, _ string, raw syscall.RawConn) error { return setUserTimeout(raw, ackTimeout) },
	}
	return network{dialer.DialContext, tcpBacklog}
}

type owedSinceKey struct{}

// withOwedSince makes attempts to connect under ctx count as if they had begun
// at since: another connection has been silent from then on.
func withOwedSince(ctx context.Context, since time.Time) context.Context {
	return context.WithValue(ctx, owedSinceKey{}, since)
}

// owedSince returns what withOwedSince was told, which only a probe does, or the
// present.
func owedSince(ctx context.Context) (since time.Time, probe bool) {
	since, probe = ctx.Value(owedSinceKey{}).(time.Time)
	if !probe {
		since = time.Now()
	}
	return since, probe
}

// dial connects and shakes hands, so that whatever fails before the first byte
// of a request is one kind of error.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.secure(ctx, network, address)
	return conn, d.note(err)
}

// dialProxy connects to an HTTP proxy on the way. net/http does the rest, which
// the line watches until TLS stands.
func (d *dialer) dialProxy(ctx context.Context, network, address string) (net.Conn, error) {
	l, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, d.note(err)
	}
	if a, ok := ctx.Value(attemptKey{}).(*attempt); ok {
		a.securing(l)
	}
	return l, nil
}

// note draws conclusions from how an attempt to connect ended. It also hears of
// attempts whose request has given up: those of clients that are less patient.
func (d *dialer) note(err error) error {
	if err != nil && !errors.Is(err, context.Canceled) && !isSilent(err) { // whoever noticed the silence has said so
		d.lines.server.unconnected(err)
	}
	return err
}

// connect opens a TCP connection.
func (d *dialer) connect(ctx context.Context, network, address string) (*line, error) {
	ls := d.lines
	lost := ls.attempts()
	since, probe := owedSince(ctx)
	if down := ls.server.down(); down != nil && !probe {
		return nil, down // net/http tries again by itself where a connection broke
	}
	end := ls.limits.deadline(since, time.Now())
	asked := ctx
	ctx, cancel := context.WithDeadlineCause(ctx, end, errConnectSilent)
	defer cancel()
	if !probe {
		defer time.AfterFunc(ls.limits.pingAfter()/2, func() { ls.suspectAll(since) }).Stop()
	}
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	defer context.AfterFunc(lost, func() { abandon(context.Cause(lost)) })()
	conn, err := ls.net.dial(ctx, network, address)
	if err == nil {
		return newLine(conn, ls, d.owner), nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errConnectSilent) && time.Since(end) > ls.limits.moment():
		return d.connect(asked, network, address) // nobody has listened: see moment
	case errors.Is(cause, errConnectSilent):
		silent := fmt.Errorf("connect: %w", &silentError{time.Since(since)})
		if !ls.alive(nil, since) {
			ls.server.lost(silent)
		}
		return nil, silent
	case lost.Err() != nil: // which ctx may not have heard of yet
		return nil, context.Cause(lost)
	}
	return nil, err
}

var errConnectSilent = errors.New("no answer to an attempt to connect")

// secure opens a TLS connection.
func (d *dialer) secure(ctx context.Context, network, address string) (net.Conn, error) {
	l, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.config
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
		config = config.Clone()
		config.ServerName = host
	}
	l.await(time.Now(), true)
	conn := tls.Client(l, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), l.Close())
	}
	l.secured()
	return conn, nil
}

// secured notes that the connection stands. One that will be upgraded is watched
// by the kernel alone from here on.
func (l *line) secured() {
	l.settle(true)
	if l.owner == nil {
		l.lines.remove(l)
	}
}
