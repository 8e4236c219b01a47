package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

// Credentials are what the hub knows the apiservers by, and shows them as the
// node. A value is immutable; a rotation is a new value.
type Credentials struct {
	// CAs sign the apiservers' certificates; nil means the system's.
	CAs *x509.CertPool
	// ServerName is checked against the apiserver's certificate in place of the
	// host in its address, if set.
	ServerName string
	// Insecure leaves the apiserver's certificate unchecked.
	Insecure bool

	// Proxy is the HTTP proxy on the way to the apiservers, as in http.Transport;
	// nil means none.
	Proxy func(*http.Request) (*url.URL, error)

	// Certificate is the node's client certificate, or nil.
	Certificate *tls.Certificate
	// Token is the node's bearer token, used where there is no certificate.
	Token string
	// Missing is set where the node has neither yet. Requests in its name are not sent
	// then, as if the cloud were away: an apiserver would take them for anybody's.
	Missing *MissingError
}

// tlsConfig returns the configuration of connections that carry requests of id.
// Protocols are offered in the order of alpn.
func (c *Credentials) tlsConfig(id authn.Identity, alpn ...string) *tls.Config {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            c.CAs,
		ServerName:         c.ServerName,
		InsecureSkipVerify: c.Insecure, //nolint:gosec // only where the node's kubeconfig says so
		NextProtos:         alpn,
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	if id == authn.Node && c.Certificate != nil {
		// Whatever CAs the apiserver names: one that does not know ours any more is to
		// refuse the node, and not to take it for anybody, who may read nothing.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.Certificate, nil }
	}
	return config
}
