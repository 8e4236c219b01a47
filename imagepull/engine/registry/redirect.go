package registry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

var errLocalAddress = errors.New("the registry sends the node to a loopback or link-local address, and is at none itself; that is refused")

// locality distinguishes addresses that each machine has: services there, such as a cloud's
// metadata service, trust whoever can reach them.
type locality int

const (
	remote locality = iota
	loopback
	linkLocal
)

func localityOf(addr net.Addr) locality {
	tcp, ok := addr.(*net.TCPAddr)
	switch {
	case ok && tcp.IP.IsLoopback():
		return loopback
	case ok && tcp.IP.IsLinkLocalUnicast():
		return linkLocal
	}
	return remote
}

// redirectKey is true in the context of a request to a host that the node's configuration does not
// name: a redirect, or a token server.
type redirectKey struct{}

// hosts are the hosts that the node's configuration names for one image. Like CRI, they may redirect
// the node to others, such as their storage. They may redirect it to a loopback or link-local address
// only if one of them has such an address itself.
type hosts struct {
	mu    sync.Mutex
	named map[string]bool   // by the host of their URL, with its port
	at    map[locality]bool // of connections to named hosts
}

func (h *hosts) name(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.named == nil {
		h.named, h.at = map[string]bool{}, map[locality]bool{}
	}
	h.named[host] = true
}

// mark records in the request's context, for guard, whether the request goes to another host. It does
// nothing if a proxy is used, which decides what may be reached.
func (h *hosts) mark(r *http.Request, t http.RoundTripper) *http.Request {
	if base, ok := t.(*http.Transport); ok && base.Proxy != nil {
		if proxy, err := base.Proxy(r); err == nil && proxy != nil {
			return r
		}
	}
	h.mu.Lock()
	redirected := !h.named[r.URL.Host]
	h.mu.Unlock()
	return r.WithContext(context.WithValue(r.Context(), redirectKey{}, redirected))
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// guard closes connections to where a registry must not redirect the node. It checks the address of
// the connection, because a name can resolve to any address.
func (h *hosts) guard(next dial) dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		redirected, marked := ctx.Value(redirectKey{}).(bool)
		if err != nil || !marked {
			return conn, err
		}
		kind := localityOf(conn.RemoteAddr())
		h.mu.Lock()
		defer h.mu.Unlock()
		if !redirected {
			h.at[kind] = true
		} else if kind != remote && !h.at[kind] {
			return nil, errors.Join(errLocalAddress, conn.Close())
		}
		return conn, nil
	}
}
