package upstream

import (
	"context"
	"net"

	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// What tests need to see, that go through a proxy.Proxy: it imports this package.

const (
	MaxProbeFactor = maxProbeFactor
	StreamWindow   = streamWindow
)

// SetNetwork puts n between u and its apiserver i.
func (u *Upstream) SetNetwork(i int, n liveness.Network) { u.servers[i].conns.Network = n }

// SetDial is SetNetwork for dialing alone.
func (u *Upstream) SetDial(i int, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	u.servers[i].conns.Network.Dial = dial
}

// CloseConns closes all connections.
func (u *Upstream) CloseConns(cause error) {
	for _, s := range u.servers {
		s.conns.CloseAll(cause)
	}
}

// Transport returns one transport of the present credentials to apiserver i.
func (u *Upstream) Transport(i int) *liveness.Transport { return u.servers[i].transports.Load().all[0] }
