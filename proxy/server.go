package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A TCP or TLS handshake gets this long each. Over a satellite link a round
	// trip takes 0.6 to 1.5 s, and the handshakes take one and two of them.
	connectTimeout   = 10 * time.Second
	handshakeTimeout = 10 * time.Second

	// A connection that was silent for pingAfter is asked for a sign of life, and
	// given up if none comes within pingTimeout. However long an answer takes, a
	// connection that answers pings is alive.
	pingAfter   = 10 * time.Second
	pingTimeout = 10 * time.Second

	// idleTimeout is how long an unused connection is kept, as client-go does.
	idleTimeout = 90 * time.Second

	// After a failure a server is asked again by one request every
	// retryInterval, and otherwise only when no other server answers.
	retryInterval = 5 * time.Second
)

// server is one apiserver.
type server struct {
	address *url.URL
	log     *slog.Logger
	metrics *Metrics

	transports atomic.Pointer[transports]

	mu       sync.Mutex
	failedAt time.Time // zero while the server answers
	retryAt  time.Time
}

func newServer(address *url.URL, log *slog.Logger, m *Metrics) *server {
	s := &server{address: address, log: log.With("apiserver", address.Host), metrics: m}
	m.serverUp.WithLabelValues(address.Host).Set(1)
	return s
}

// roundTrip sends req to this server and notes whether it could be reached. An
// error that is the client's own says nothing about the server.
func (s *server) roundTrip(req *http.Request) (*http.Response, error) {
	out := *req
	target := *req.URL
	target.Scheme, target.Host = s.address.Scheme, s.address.Host
	out.URL, out.Host = &target, s.address.Host

	res, err := s.transports.Load().of(&out).RoundTrip(&out)
	switch {
	case err == nil:
		s.succeeded(time.Now())
	case req.Context().Err() == nil && !errors.Is(err, errClientBody):
		s.failed(time.Now(), err)
	}
	return res, err
}

func (s *server) setCredentials(creds *Credentials) {
	if old := s.transports.Swap(newTransports(creds)); old != nil {
		old.closeIdle()
	}
}

func (s *server) closeIdle() { s.transports.Load().closeIdle() }

// eligible reports whether s should be asked before the servers that are down:
// it answers, or it is time for one request to find out.
func (s *server) eligible(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failedAt.IsZero() {
		return true
	}
	if now.Before(s.retryAt) {
		return false
	}
	s.retryAt = now.Add(retryInterval)
	return true
}

func (s *server) succeeded(now time.Time) {
	s.mu.Lock()
	since := s.failedAt
	s.failedAt = time.Time{}
	s.mu.Unlock()
	if !since.IsZero() {
		s.metrics.serverUp.WithLabelValues(s.address.Host).Set(1)
		s.log.Info("apiserver answers again", "after", now.Sub(since).Round(time.Millisecond))
	}
}

func (s *server) failed(now time.Time, err error) {
	s.mu.Lock()
	first := s.failedAt.IsZero()
	if first {
		s.failedAt = now
	}
	s.retryAt = now.Add(retryInterval)
	s.mu.Unlock()
	if first {
		s.metrics.serverUp.WithLabelValues(s.address.Host).Set(0)
		s.log.Warn("apiserver cannot be reached", "err", err)
	}
}

// transports are the connections that one generation of credentials opens.
// HTTP/2 has no way to upgrade a request (exec, attach, port-forward), so those
// have connections of their own; so have callers that nothing is lent to.
type transports struct {
	token   string               // of the node, or empty
	plain   [2]http.RoundTripper // by Identity
	upgrade [2]http.RoundTripper // by Identity
	all     []*http.Transport
}

func newTransports(creds *Credentials) *transports {
	t := &transports{}
	if creds.Certificate == nil {
		t.token = creds.Token
	}
	open := func(id Identity, alpn ...string) *http.Transport {
		tr := newTransport(creds.tlsConfig(id, alpn...), creds.Proxy)
		t.all = append(t.all, tr)
		return tr
	}
	for _, id := range []Identity{Own, Node} {
		t.plain[id] = open(id, "h2", "http/1.1")
		t.upgrade[id] = open(id, "http/1.1")
	}
	return t
}

// of returns the transport for req, after lending it the node's token where the
// node is known by one.
func (t *transports) of(req *http.Request) http.RoundTripper {
	id := identityFrom(req.Context())
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
func newTransport(config *tls.Config, proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: pingAfter}
	return &http.Transport{
		Proxy: proxy,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) { // to an HTTP proxy
			conn, err := dialer.DialContext(ctx, network, address)
			return conn, asDialError(err)
		},
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialTLS(ctx, dialer, config, network, address)
			return conn, asDialError(err)
		},
		TLSClientConfig:     config,
		TLSHandshakeTimeout: handshakeTimeout,
		ForceAttemptHTTP2:   len(config.NextProtos) > 0 && config.NextProtos[0] == "h2",
		DisableCompression:  true, // or it would ask for gzip by itself, and undo it
		IdleConnTimeout:     idleTimeout,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// dialTLS connects and shakes hands, so that whatever fails before the first
// byte of a request is one kind of error.
func dialTLS(ctx context.Context, dialer *net.Dialer, config *tls.Config, network, address string) (net.Conn, error) {
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
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("TLS handshake: %w", err), raw.Close())
	}
	return conn, nil
}

// dialError is a failure to get a connection: nothing was sent on it.
type dialError struct{ err error }

func asDialError(err error) error {
	if err == nil {
		return nil
	}
	return &dialError{err}
}

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// undelivered reports whether err shows that no byte of the request was sent.
func undelivered(err error) bool {
	var dial *dialError
	return errors.As(err, &dial)
}
