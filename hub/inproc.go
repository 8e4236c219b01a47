package hub

import (
	"context"
	"errors"
	"net"
	"sync"
)

// inproc is a net.Listener inside the process. Through it the hub's own requests go through the
// proxy, as those of the node's clients do, without one of the hub's ports.
type inproc struct {
	conns  chan net.Conn // unbuffered: Dial returns when the connection is accepted
	closed chan struct{}
	once   sync.Once
}

func newInproc() *inproc {
	return &inproc{conns: make(chan net.Conn), closed: make(chan struct{})}
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
