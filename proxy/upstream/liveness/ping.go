package liveness

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/net/http2"
)

// net/http can ping by itself, but closes a connection whose ping is answered late even if
// other bytes arrive, and offers no ping to its callers. So this package uses the HTTP/2 of
// golang.org/x/net, whose API is deprecated in favour of net/http. If that API is removed,
// probes take the place of pings, as for HTTP/1.1, and tests fail.

// pinger is the part of an HTTP/2 connection that Conn uses.
type pinger interface {
	// Ping returns when it is answered, or ctx or the connection ends.
	Ping(ctx context.Context) error
	State() http2.ClientConnState //nolint:staticcheck // see the top
}

// enablePing reports the HTTP/2 connections of t to the attempts that they carry.
func enablePing(t *http.Transport) error {
	h2, err := http2.ConfigureTransports(t) //nolint:staticcheck // see the top
	if err != nil {
		return err
	}
	pool := h2.ConnPool //nolint:staticcheck // see the top
	if pool == nil {
		return errors.New("net/http keeps its HTTP/2 connections to itself")
	}
	h2.ConnPool = trackingPool{pool} //nolint:staticcheck // see the top
	return nil
}

// trackingPool is the pool of HTTP/2 connections. It reports to an attempt which one it gets.
type trackingPool struct{ http2.ClientConnPool }

func (p trackingPool) GetClientConn(req *http.Request, addr string) (*http2.ClientConn, error) { //nolint:staticcheck // see the top
	conn, err := p.ClientConnPool.GetClientConn(req, addr)
	if a, ok := req.Context().Value(attemptKey{}).(*Attempt); ok && err == nil {
		a.mu.Lock()
		a.http2 = conn
		a.mu.Unlock()
	}
	return conn, err
}
