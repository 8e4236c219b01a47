package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"

	"github.com/edgehub-io/edgehub/proxy/authn"
)

// Credentials authenticate the apiservers to the hub, and the node to the apiservers. A value
// is immutable; a rotation is a new value.
type Credentials struct {
	// CAs sign the apiservers' certificates; nil means the system's.
	CAs *x509.CertPool
	// ServerName, if set, replaces the host of the apiserver's address in the verification of
	// its certificate.
	ServerName string
	// Insecure disables the verification of the apiserver's certificate.
	Insecure bool

	// Proxy is the proxy on the way to the apiservers, as in http.Transport; nil means none. It does not get
	// the node's client certificate.
	Proxy func(*http.Request) (*url.URL, error)

	// Certificate is the node's client certificate, or nil.
	Certificate *tls.Certificate
	// Token is the node's bearer token, used where there is no certificate.
	Token string
	// Missing is set while the node has neither. Requests as the node are then not sent, as if
	// the cloud were away: an apiserver would treat them as anonymous.
	Missing *MissingError
}

// tlsConfig returns the configuration of connections that carry requests of id.
// Protocols are offered in the order of alpn.
func (c *Credentials) tlsConfig(id authn.Identity, alpn ...string) *tls.Config {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            c.CAs,
		ServerName:         c.ServerName,
		InsecureSkipVerify: c.Insecure, //nolint:gosec // only if set in the node's kubeconfig
		NextProtos:         alpn,
		ClientSessionCache: tls.NewLRUClientSessionCache(0),
	}
	if id == authn.Node && c.Certificate != nil {
		// Whatever CAs the apiserver lists: if it no longer trusts the certificate's CA, it
		// must refuse the node instead of treating it as anonymous.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.Certificate, nil }
	}
	return config
}
