package registry

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
)

var errLocalAddress = errors.New("the registry sends the node to a loopback or link-local address, and is at none itself; that is refused")

// locality distinguishes the addresses that mean something else on each machine: what
// listens there trusts whoever can reach it, such as a cloud's metadata service.
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

// redirectKey marks the context of a request to a host that the node's configuration
// does not name with true: a redirect, or where a registry has its tokens.
type redirectKey struct{}

// hosts are those that the node's configuration names for one image. A registry may send
// the node to others, its storage for example, as with CRI. It may send it to an address
// of the node itself, or of its link, only if it is itself at such an address.
type hosts struct {
	mu    sync.Mutex
	named map[string]bool   // by the host of their URL, with its port
	at    map[locality]bool // where those were found
}

func (h *hosts) name(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.named == nil {
		h.named, h.at = map[string]bool{}, map[locality]bool{}
	}
	h.named[host] = true
}

// mark records in the request's context, for the dialer, whether the request goes to a host
// other than these. It does not where a proxy is used: the proxy decides what may be reached.
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

// guard closes connections that lead where a registry must not send the node. The
// address is that of the connection: a name can be made to mean any.
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
