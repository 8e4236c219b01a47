package proxy

import (
	"crypto/x509"
	"fmt"
	"net/http"
)

// ClientCert is the Authenticator of the TLS port. A caller with a token keeps
// it; one that presents the node's own client certificate is the node; nobody
// else gets in.
//
// nodeUser is the certificate's common name, system:node:NAME. roots returns
// the CAs that client certificates are checked against; it is called for each
// request, so that they can be rotated. The server must ask for client
// certificates without verifying them (tls.RequestClientCert), so that a
// stranger is answered 401 instead of a broken handshake.
func ClientCert(nodeUser string, roots func() *x509.CertPool) Authenticator {
	return func(r *http.Request) (Identity, error) {
		if hasCredentials(r.Header) {
			return Own, nil
		}
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return Own, ErrUnauthenticated
		}
		chain := r.TLS.PeerCertificates
		intermediates := x509.NewCertPool()
		for _, c := range chain[1:] {
			intermediates.AddCert(c)
		}
		_, err := chain[0].Verify(x509.VerifyOptions{
			Roots:         roots(),
			Intermediates: intermediates,
			KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			return Own, fmt.Errorf("%w: client certificate of %q: %w", ErrUnauthenticated, chain[0].Subject.CommonName, err)
		}
		if got := chain[0].Subject.CommonName; got != nodeUser {
			return Own, fmt.Errorf("%w: the client certificate is %q's, not %q's", ErrUnauthenticated, got, nodeUser)
		}
		return Node, nil
	}
}
