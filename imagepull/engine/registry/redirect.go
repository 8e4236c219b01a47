package registry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// localAddressError is the refusal to go where a registry must not send the node.
type localAddressError struct{ host, address string }

func (e *localAddressError) Error() string {
	return fmt.Sprintf("%s is at %s, a loopback or link-local address", e.host, e.address)
}

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

// guard refuses connections to where a registry must not redirect the node, also where nobody would
// take them. It checks the address of the connection, because a name can resolve to any address.
func (h *hosts) guard(next dial) dial {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		redirected, marked := ctx.Value(redirectKey{}).(bool)
		if !marked {
			return conn, err
		}
		to := dialed(conn, err)
		kind := localityOf(to)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case redirected && kind != remote && !h.at[kind]:
			if err == nil {
				_ = conn.Close() // nothing was sent
			}
			return nil, &localAddressError{host: addr, address: to.String()}
		case !redirected && err == nil:
			h.at[kind] = true
		}
		return conn, err
	}
}

// dialed returns the address of a connection, or that of the attempt to connect, or nil.
func dialed(conn net.Conn, err error) net.Addr {
	if err == nil {
		return conn.RemoteAddr()
	}
	if failed, ok := errors.AsType[*net.OpError](err); ok {
		return failed.Addr
	}
	return nil
}
