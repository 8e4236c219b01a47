package upstream

import (
	"net/http"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// streamWindow is how much of an answer an apiserver may send ahead of a client with
// credentials of its own that does not read, in bytes, and so what such a client costs.
// At a round trip of 200 ms it lets 2.5 MB a second through for each request;
// net/http's own 4 MiB would be more than the hub has, where a hundred do not read.
const streamWindow = 512 << 10

// transports are the connections that one generation of credentials opens.
// HTTP/2 has no way to upgrade a request (exec, attach, port-forward), so those
// have connections of their own; so have callers that nothing is lent to.
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

// of returns the transport for req, after lending it the node's token where the
// node is known by one.
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

// closeIdle drops the connections that nobody uses.
func (t *transports) closeIdle(allIsOver bool) {
	for _, tr := range t.all {
		tr.CloseIdle(allIsOver)
	}
}
