package upstream

import (
	"net/http"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// streamWindow is the HTTP/2 flow control window, in bytes, for clients with credentials of
// their own. It bounds the memory that a client costs that does not read. At a round trip of
// 200 ms it allows 2.5 MB/s per request; with net/http's default of 4 MiB a hundred such
// clients would need more memory than the hub has.
const streamWindow = 512 << 10

// transports are the transports of one generation of credentials. HTTP/2 cannot upgrade
// requests (exec, attach, port-forward), so these use separate connections; so do callers
// with their own credentials.
type transports struct {
	missing *MissingError        // why there are no credentials, or nil
	token   string               // of the node, or empty
	plain   [2]http.RoundTripper // by Identity
	upgrade [2]http.RoundTripper // by Identity
	all     []*liveness.Transport
}

func newTransports(cs *liveness.Conns, creds *Credentials) *transports {
	t := &transports{missing: creds.Missing}
	if creds.Certificate == nil {
		t.token = creds.Token
	}
	for _, id := range []authn.Identity{authn.Caller, authn.Node} {
		o := liveness.TransportOptions{TLS: creds.tlsConfig(id, "h2", "http/1.1"), Proxy: creds.Proxy}
		if id == authn.Caller {
			o.StreamWindow = streamWindow
		}
		plain := cs.NewTransport(o)
		upgrade := cs.NewTransport(liveness.TransportOptions{TLS: creds.tlsConfig(id, "http/1.1"), Proxy: creds.Proxy, Upgrades: true})
		t.plain[id], t.upgrade[id] = plain, upgrade
		t.all = append(t.all, plain, upgrade)
	}
	return t
}

// of returns the transport for req, and adds the node's token to a request of the Node identity
// if the node has one.
func (t *transports) of(req *http.Request) http.RoundTripper {
	id := authn.IdentityOf(req.Context())
	if id == authn.Node && t.token != "" {
		req.Header = req.Header.Clone()
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	if req.Header.Get("Upgrade") != "" {
		return t.upgrade[id]
	}
	return t.plain[id]
}
