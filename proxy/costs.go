package proxy

import (
	"errors"
	"net/http"
	"strings"

	"github.com/edgehub-io/edgehub/proxy/limits"
)

// Some requests of callers with credentials of their own use up a connection to the apiserver: each
// costs both sides a TLS handshake, and the hub a port for a minute, in TIME-WAIT. These are
//
//   - requests that an apiserver answers with 401, or as anonymous: by HTTP/2 it sends GOAWAY then
//     (k8s.io/apiserver, UnauthenticatedHTTP2DOSMitigation);
//   - requests for an upgrade that are refused: only HTTP/1.1 can upgrade, and a client that breaks
//     one off takes its connection along.
//
// Each tenant, and each peer whose token nobody knows, has costsBurst of them, and costsRate more a
// second: at most 400 ports of the 28,000 that Linux has for one destination. Shells and
// port-forwards are opened by people, and a refused one takes two attempts of kubectl.
const (
	costsBurst = 100
	costsRate  = 5
)

// errTooCostly becomes a 429, after which client-go retries.
var errTooCostly = errors.New("too many requests of this caller had a token that the apiserver refuses, or were refused upgrades, each of which costs a connection to the apiserver; try again, with a valid token")

// mayCost returns false for a request that may use up a connection if its caller has used up too
// many. An upgrade counts until it succeeds.
func (p *Proxy) mayCost(r *http.Request, by *limits.Share) bool {
	if p.isUpgrade(r) {
		return p.costs.Spend(by.Payer(), 1, 0)
	}
	return by.Tenant() != "" || p.costs.Wait(by.Payer()) == 0
}

// charge counts what an answered request has cost. A 401 to a known token is its backend's, or has
// the token reviewed and forgotten.
func (p *Proxy) charge(x *forwarded, res *http.Response) {
	switch {
	case x.share == nil:
	case x.upgrade && res.StatusCode == http.StatusSwitchingProtocols:
		p.costs.Spend(x.share.Payer(), -1, 0)
	case !x.upgrade && x.share.Tenant() == "" && (res.StatusCode == http.StatusUnauthorized || isAnonymous(res.Request.Header)):
		p.costs.Spend(x.share.Payer(), 1, 0)
	}
}

// isAnonymous reports whether an apiserver finds no bearer token in h, where it looks for one
// (k8s.io/apiserver, bearertoken.Authenticator).
func isAnonymous(h http.Header) bool {
	scheme, token, _ := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	return !strings.EqualFold(scheme, "bearer") || token == "" || token[0] == ' '
}

// isUpgrade reports whether a request asks for a protocol that an apiserver knows, or that a backend
// may know to which the apiserver passes the request on. Others (h2c, which Java's client offers by
// itself) are not passed on, as HTTP allows, since they would keep the request off HTTP/2 for
// nothing.
func (p *Proxy) isUpgrade(r *http.Request) bool {
	switch strings.ToLower(r.Header.Get("Upgrade")) {
	case "":
		return false
	case "websocket", "spdy/3.1":
		return true
	}
	info, err := p.requestInfo(r)
	return err == nil && (info.Subresource == "proxy" || info.Verb == "proxy")
}
