package liveness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"
)

// dialer opens connections to one apiserver. The handshakes of TCP and TLS may each be silent
// for Timeouts.Loss; their total time is not limited. Dials end when the apiserver proves
// unresponsive on another connection.
type dialer struct {
	conns  *Conns
	owner  *Transport // nil: connections that will be upgraded, and are not monitored
	config *tls.Config
}

// Network opens connections: TCP, except in tests.
type Network struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Backlog returns a function that returns how many bytes sent on conn the other side has
	// acknowledged, and whether some are not acknowledged yet.
	Backlog func(conn net.Conn) func() (acked uint64, waiting bool)
}

func tcp() Network {
	dialer := &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: ackTimeout / 2, Count: 2},
		Control:         func(_, _ string, raw syscall.RawConn) error { return setUserTimeout(raw, ackTimeout) },
	}
	return Network{dialer.DialContext, tcpBacklog}
}

// dial connects and does the TLS handshake, so that every failure before the first byte of a
// request is the same kind of error.
func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dialTLS(ctx, network, address)
	return conn, d.report(err)
}

// dialProxy connects to an HTTP proxy. net/http does the rest; the Conn monitors it until the
// TLS handshake is done.
func (d *dialer) dialProxy(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.connect(ctx, network, address, 0)
	if err != nil {
		return nil, d.report(err)
	}
	attemptOf(ctx).handshakeStarted(c)
	return c, nil
}

// report reports the result of a dial, also of one whose request was canceled because its
// client timed out earlier.
func (d *dialer) report(err error) error {
	if err != nil && !errors.Is(err, context.Canceled) && !IsUnresponsive(err) { // silence was reported already
		d.conns.server.ConnectFailed(err)
	}
	return err
}

// connect opens a TCP connection. voids is how many attempts in a row did not count because this
// process was starved.
func (d *dialer) connect(ctx context.Context, network, address string, voids int) (*Conn, error) {
	cs := d.conns
	lost := cs.dialContext()
	a := attemptOf(ctx)
	since := time.Now()
	if !a.Since.IsZero() {
		since = a.Since
	}
	if down := cs.server.Down(); down != nil && !a.Probe {
		return nil, down // stops net/http's own retries after a broken connection
	}
	end := cs.timeouts.deadline(since, time.Now())
	asked := ctx
	ctx, cancel := context.WithDeadlineCause(ctx, end, errConnectTimeout)
	defer cancel()
	if !a.Probe {
		defer time.AfterFunc(cs.timeouts.pingAfter()/2, func() { cs.pingEvery(since) }).Stop()
	}
	ctx, abandon := context.WithCancelCause(ctx)
	defer abandon(nil)
	defer context.AfterFunc(lost, func() { abandon(context.Cause(lost)) })()
	conn, err := cs.Network.Dial(ctx, network, address)
	if err == nil {
		return newConn(conn, cs, d.owner), nil
	}
	runtime.Gosched() // so that the lateness is that of an answer: see Conn.check
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errConnectTimeout) && time.Since(end) > cs.timeouts.timerSlack() && voids < maxVoid:
		cs.server.Starved(time.Since(since))
		return d.connect(asked, network, address, voids+1)
	case errors.Is(cause, errConnectTimeout):
		silent := fmt.Errorf("connect: %w", &UnresponsiveError{time.Since(since)})
		if !cs.activeSince(nil, since) {
			cs.server.Unresponsive(silent)
		}
		return nil, silent
	case lost.Err() != nil: // ctx may not be canceled yet
		return nil, context.Cause(lost)
	}
	return nil, err
}

var errConnectTimeout = errors.New("no answer to an attempt to connect")

// dialTLS opens a TLS connection.
func (d *dialer) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.connect(ctx, network, address, 0)
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
	c.start(pendingHandshake, time.Now())
	conn := tls.Client(c, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), c.Close())
	}
	c.handshakeDone()
	return conn, nil
}
