package hub

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
)

// inproc is a net.Listener inside the process. Through it the hub's own requests go through the
// proxy, as those of the node's clients do, without one of the hub's ports.
type inproc struct {
	conns  chan net.Conn // unbuffered: Dial returns when the connection is accepted
	closed chan struct{}
	once   sync.Once

	transport *http.Transport // has the connections of client
}

func newInproc() *inproc {
	l := &inproc{conns: make(chan net.Conn), closed: make(chan struct{})}
	l.transport = &http.Transport{DialContext: l.Dial}
	return l
}

// Dial returns the client side of a new connection.
func (l *inproc) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, errors.Join(net.ErrClosed, client.Close(), server.Close())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), client.Close(), server.Close())
	}
}

// client has requests sent through the listener.
func (l *inproc) client(userAgent string) *rest.Config {
	return &rest.Config{Host: "http://edgehub", UserAgent: userAgent, Transport: l.transport}
}

func (l *inproc) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *inproc) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *inproc) Addr() net.Addr { return inprocAddr{} }

type inprocAddr struct{}

func (inprocAddr) Network() string { return "inproc" }
func (inprocAddr) String() string  { return "inproc" }
