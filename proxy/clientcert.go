package proxy

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
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
	var last atomic.Pointer[verified] // a check costs as much as a whole GET, and the node has one certificate
	return func(r *http.Request) (Identity, error) {
		if hasCredentials(r.Header) {
			return Own, nil
		}
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
			return Own, ErrUnauthenticated
		}
		v := &verified{leaf: r.TLS.PeerCertificates[0], roots: roots()}
		if v.same(last.Load()) && time.Now().Before(v.leaf.NotAfter) {
			return Node, nil
		}
		if err := v.check(nodeUser, r.TLS.PeerCertificates[1:]); err != nil {
			return Own, err
		}
		last.Store(v)
		return Node, nil
	}
}

// verified is a client certificate that was found good, and by what.
type verified struct {
	leaf  *x509.Certificate
	roots *x509.CertPool
}

func (v *verified) same(other *verified) bool {
	return other != nil && v.roots == other.roots && v.leaf.Equal(other.leaf)
}

func (v *verified) check(nodeUser string, rest []*x509.Certificate) error {
	intermediates := x509.NewCertPool()
	for _, c := range rest {
		intermediates.AddCert(c)
	}
	_, err := v.leaf.Verify(x509.VerifyOptions{
		Roots:         v.roots,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("%w: client certificate of %q: %w", ErrUnauthenticated, v.leaf.Subject.CommonName, err)
	}
	if got := v.leaf.Subject.CommonName; got != nodeUser {
		return fmt.Errorf("%w: the client certificate is %q's, not %q's", ErrUnauthenticated, got, nodeUser)
	}
	return nil
}
