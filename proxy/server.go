package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// handshakeTimeout is how long TCP and TLS handshakes get each. Over a
	// satellite link a round trip takes 0.6 to 1.5 s, and they take one and two.
	handshakeTimeout = 10 * time.Second

	// A connection that was silent for pingAfter is asked for a sign of life, and
	// given up if none comes within pingTimeout; one that has sent something waits
	// that long for its acknowledgement. However long an answer takes, a
	// connection that does either is alive.
	pingAfter   = 10 * time.Second
	pingTimeout = 10 * time.Second

	// idleTimeout is how long an unused connection is kept, as client-go does.
	idleTimeout = 90 * time.Second

	// maxIdle is how many unused HTTP/1.1 connections are kept, where a load
	// balancer on the way does not speak HTTP/2.
	maxIdle = 100
)

// server is one apiserver.
type server struct {
	address   *url.URL
	log       *slog.Logger
	health    *health
	handshake time.Duration // handshakeTimeout, but in tests

	transports atomic.Pointer[transports]
}

// newServer returns an apiserver that counts as up. changed hears of each change
// of that; it must not call back.
func newServer(address *url.URL, log *slog.Logger, m *Metrics, changed func(up bool, at time.Time)) *server {
	log = log.With("apiserver", address.Host)
	up, last := m.serverUp.WithLabelValues(address.Host), m.lastChange.WithLabelValues(address.Host)
	s := &server{address: address, log: log, handshake: handshakeTimeout}
	s.health = newHealth(log, func(isUp bool, at time.Time) {
		report(up, last, isUp, at)
		changed(isUp, at)
	})
	report(up, last, true, s.health.since)
	return s
}

// roundTrip sends req to this server. An error before the request got a
// connection is a *dialError.
func (s *server) roundTrip(req *http.Request) (*http.Response, error) {
	var connected atomic.Bool
	out := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}))
	target := *req.URL
	target.Scheme, target.Host = s.address.Scheme, s.address.Host
	out.URL, out.Host = &target, s.address.Host

	res, err := s.transports.Load().of(out).RoundTrip(out)
	switch {
	case err == nil:
		s.health.succeeded(time.Now())
	case !connected.Load():
		err = asDialError(err) // an HTTP proxy on the way may have refused, too
		if req.Context().Err() == nil {
			s.health.failed(time.Now(), err)
		}
	}
	return res, err
}

// dialed notes how an attempt to connect ended. It also hears of attempts whose
// request has given up: those of clients that are less patient than
// handshakeTimeout.
func (s *server) dialed(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.health.failed(time.Now(), err)
	}
}

func (s *server) setCredentials(creds *Credentials) {
	if old := s.transports.Swap(s.newTransports(creds)); old != nil {
		old.closeIdle()
	}
}

func (s *server) closeIdle() { s.transports.Load().closeIdle() }

// transports are the connections that one generation of credentials opens.
// HTTP/2 has no way to upgrade a request (exec, attach, port-forward), so those
// have connections of their own; so have callers that nothing is lent to.
type transports struct {
	token   string               // of the node, or empty
	plain   [2]http.RoundTripper // by Identity
	upgrade [2]http.RoundTripper // by Identity
	all     []*http.Transport
}

func (s *server) newTransports(creds *Credentials) *transports {
	t := &transports{}
	if creds.Certificate == nil {
		t.token = creds.Token
	}
	open := func(id Identity, alpn ...string) *http.Transport {
		tr := s.newTransport(creds.tlsConfig(id, alpn...), creds.Proxy)
		t.all = append(t.all, tr)
		return tr
	}
	for _, id := range []Identity{Own, Node} {
		t.plain[id] = open(id, "h2", "http/1.1")
		upgrade := open(id, "http/1.1")
		upgrade.DisableKeepAlives = true // one refused upgrade in a while is not worth a connection
		t.upgrade[id] = upgrade
	}
	return t
}

// of returns the transport for req, after lending it the node's token where the
// node is known by one.
func (t *transports) of(req *http.Request) http.RoundTripper {
	id := IdentityOf(req.Context())
	if id == Node && t.token != "" {
		req.Header = req.Header.Clone()
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	if req.Header.Get("Upgrade") != "" {
		return t.upgrade[id]
	}
	return t.plain[id]
}

func (t *transports) closeIdle() {
	for _, tr := range t.all {
		tr.CloseIdleConnections()
	}
}

// newTransport returns a transport that adds nothing to a request and takes
// nothing from an answer.
func (s *server) newTransport(config *tls.Config, proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	dialer := &net.Dialer{
		Timeout:         s.handshake,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: pingTimeout / 2, Count: 2},
		Control: func(_, _ string, raw syscall.RawConn) error {
			return setUserTimeout(raw, pingAfter+pingTimeout)
		},
	}
	return &http.Transport{
		Proxy: proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) { // to an HTTP proxy
			conn, err := dialer.DialContext(ctx, network, address)
			s.dialed(err)
			return conn, err
		},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.dialTLS(ctx, dialer, config, network, address)
			s.dialed(err)
			return conn, err
		},
		TLSClientConfig:     config,
		TLSHandshakeTimeout: s.handshake,
		ForceAttemptHTTP2:   len(config.NextProtos) > 0 && config.NextProtos[0] == "h2",
		DisableCompression:  true, // or it would ask for gzip by itself, and undo it
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: maxIdle,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// dialTLS connects and shakes hands, so that whatever fails before the first
// byte of a request is one kind of error.
func (s *server) dialTLS(ctx context.Context, dialer *net.Dialer, config *tls.Config, network, address string) (net.Conn, error) {
	raw, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		config = config.Clone()
		config.ServerName = host
	}
	ctx, cancel := context.WithTimeout(ctx, s.handshake)
	defer cancel()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), raw.Close())
	}
	return conn, nil
}
