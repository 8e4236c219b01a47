package liveness

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
	conns  *Conns
	owner  *Transport // nil: connections that will be upgraded, and are not watched
	config *tls.Config
}

// Network is what connections are made of: TCP, but in tests.
type Network struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Backlog returns a function that says how many bytes of what was sent on conn
	// the other side has acknowledged since its beginning, and whether it has yet
	// to acknowledge some.
	Backlog func(conn net.Conn) func() (acked uint64, waiting bool)
}

func tcp() Network {
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: ackTimeout / 2, Count: 2},
		Control:         func(_, _ string, raw syscall.RawConn) error { return setUserTimeout(raw, ackTimeout) },
	}
	return Network{dialer.DialContext, tcpBacklog}
}

type probeSinceKey struct{}

// WithProbeSince makes attempts to connect under ctx count as if they had begun
// at since: another connection has been silent from then on.
func WithProbeSince(ctx context.Context, since time.Time) context.Context {
	return context.WithValue(ctx, probeSinceKey{}, since)
}

// probeSince returns what withOwedSince was told, which only a probe does, or the
// present.
func probeSince(ctx context.Context) (since time.Time, probe bool) {
	since, probe = ctx.Value(probeSinceKey{}).(time.Time)
	if !probe {
		since = time.Now()
	}
	return since, probe
}

// dial connects and shakes hands, so that whatever fails before the first byte
// of a request is one kind of error.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dialTLS(ctx, network, address)
	return conn, d.report(err)
}

// dialProxy connects to an HTTP proxy on the way. net/http does the rest, which
// the connection watches until TLS stands.
func (d *dialer) dialProxy(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, d.report(err)
	}
	if a, ok := ctx.Value(attemptKey{}).(*Attempt); ok {
		a.handshakeStarted(c)
	}
	return c, nil
}

// report draws conclusions from how an attempt to connect ended. It also hears of
// attempts whose request has given up: those of clients that are less patient.
func (d *dialer) report(err error) error {
	if err != nil && !errors.Is(err, context.Canceled) && !IsUnresponsive(err) { // whoever noticed the silence has said so
		d.conns.server.ConnectFailed(err)
	}
	return err
}

// connect opens a TCP connection.
func (d *dialer) connect(ctx context.Context, network, address string) (*Conn, error) {
	cs := d.conns
	lost := cs.dialContext()
	since, probe := probeSince(ctx)
	if down := cs.server.Down(); down != nil && !probe {
		return nil, down // net/http tries again by itself where a connection broke
	}
	end := cs.timeouts.deadline(since, time.Now())
	asked := ctx
	ctx, cancel := context.WithDeadlineCause(ctx, end, errConnectTimeout)
	defer cancel()
	if !probe {
		defer time.AfterFunc(cs.timeouts.pingAfter()/2, func() { cs.pingAll(since) }).Stop()
	}
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	defer context.AfterFunc(lost, func() { abandon(context.Cause(lost)) })()
	conn, err := cs.Network.Dial(ctx, network, address)
	if err == nil {
		return newConn(conn, cs, d.owner), nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errConnectTimeout) && time.Since(end) > cs.timeouts.timerSlack():
		return d.connect(asked, network, address) // nobody has listened: see moment
	case errors.Is(cause, errConnectTimeout):
		silent := fmt.Errorf("connect: %w", &UnresponsiveError{time.Since(since)})
		if !cs.activeSince(nil, since) {
			cs.server.Unresponsive(silent)
		}
		return nil, silent
	case lost.Err() != nil: // which ctx may not have heard of yet
		return nil, context.Cause(lost)
	}
	return nil, err
}

var errConnectTimeout = errors.New("no answer to an attempt to connect")

// dialTLS opens a TLS connection.
func (d *dialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.connect(ctx, network, address)
	if err != nil {
		return nil, err
	}
	config := d.config
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		config = config.Clone()
		config.ServerName = host
	}
	c.requestStarted(time.Now(), true)
	conn := tls.Client(c, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), c.Close())
	}
	c.handshakeDone()
	return conn, nil
}

// handshakeDone notes that the connection stands. One that will be upgraded is watched
// by the kernel alone from here on.
func (c *Conn) handshakeDone() {
	c.requestDone(true)
	if c.owner == nil {
		c.conns.remove(c)
	}
}
