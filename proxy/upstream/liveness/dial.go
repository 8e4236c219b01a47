package liveness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
)

// dialer opens connections to one apiserver. The handshakes of TCP and TLS may each be silent
// for Timeouts.Loss; their total time is not limited. Dials end when the apiserver proves
// unresponsive on another connection.
type dialer struct {
	conns  *Conns
	owner  *Transport // nil: connections that will be upgraded, and are not monitored
	config *tls.Config
	// tlsProxies are the addresses of proxies at https://.
	tlsProxies sync.Map
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

// choose returns proxy with proxies at https:// as if they were at http://: net/http would do their TLS handshake
// with the configuration for apiservers, and present the node's client certificate. dialProxy does it.
func (d *dialer) choose(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	if proxy == nil {
		return nil
	}
	return func(r *http.Request) (*url.URL, error) {
		u, err := proxy(r)
		if err != nil || u == nil || u.Scheme != "https" {
			return u, err
		}
		if strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }) {
			return nil, fmt.Errorf("proxy %s: write its name as xn--…", u.Redacted()) // net/http dials another than it is given
		}
		plain := *u
		plain.Scheme = "http"
		if u.Port() == "" {
			plain.Host = net.JoinHostPort(u.Hostname(), "443")
		}
		d.tlsProxies.Store(plain.Host, true)
		return &plain, nil
	}
}

// dialProxy connects to a proxy. net/http does the rest; the Conn monitors it until the TLS handshake with the
// apiserver is done.
func (d *dialer) dialProxy(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := d.connect(ctx, network, address, 0)
	if err != nil {
		return nil, d.report(err)
	}
	attemptOf(ctx).handshakeStarted(c)
	if _, ok := d.tlsProxies.Load(address); !ok {
		return c, nil
	}
	conn := tls.Client(c, d.proxyConfig(address))
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, d.report(errors.Join(fmt.Errorf("TLS handshake with the proxy %s: %w", address, err), c.Close()))
	}
	return conn, nil
}

// proxyConfig is the configuration of TLS with a proxy. The CAs of the system and those of the apiserver may have
// signed its certificate.
func (d *dialer) proxyConfig(address string) *tls.Config {
	host, _, _ := net.SplitHostPort(address) // net/http has joined them
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: host, NextProtos: []string{"http/1.1"},
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(state tls.ConnectionState) error {
			if d.config.InsecureSkipVerify {
				return nil
			}
			o := x509.VerifyOptions{DNSName: host, Intermediates: x509.NewCertPool()}
			for _, c := range state.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := state.PeerCertificates[0].Verify(o)
			if o.Roots = d.config.RootCAs; err != nil && o.Roots != nil {
				_, err = state.PeerCertificates[0].Verify(o)
			}
			return err
		},
	}
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
