package liveness

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/net/http2"
)

// net/http pings by itself and gives a connection up whose ping is answered late,
// though bytes come all the time. It has no ping that a caller may send, and
// http.ClientConn has none either; so HTTP/2 is golang.org/x/net's, of which what
// is used here is deprecated in favour of net/http's. Should that go away, lines
// are judged by probes, as those of HTTP/1.1 are, and tests say so.

// pinger is an HTTP/2 connection, as far as a line needs it.
type pinger interface {
	// Ping returns when it is answered, or with ctx or the connection.
	Ping(ctx context.Context) error
	State() http2.ClientConnState //nolint:staticcheck // see the top
}

// enablePing makes HTTP/2 connections of t known to the attempts they carry.
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

// trackingPool is the pool of HTTP/2 connections, which tells an attempt which one
// it gets.
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
