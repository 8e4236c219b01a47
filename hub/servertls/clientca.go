package servertls

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/edgehub-io/edgehub/hub/csrf"
	"github.com/edgehub-io/edgehub/hub/kubeconfig"
	"github.com/edgehub-io/edgehub/proxy/authn"
)

// ClientCAs are the CAs in --serve-client-ca-file. They follow changes of the file, and are
// safe for concurrent use.
type ClientCAs struct{ pool *cachedFile[*x509.CertPool] }

// NewClientCAs reads the CAs from file. Its error names the flag.
func NewClientCAs(file string, log *slog.Logger) (*ClientCAs, error) {
	pool, err := newCachedFile(func() (*x509.CertPool, error) { return readCAs(file) }, func(err error) {
		log.Error("the CAs of the node's HTTP API cannot be read again; those in use stay", "flag", "--serve-client-ca-file", "err", err)
	})
	if err != nil {
		return nil, fmt.Errorf("--serve-client-ca-file: %w", err)
	}
	return &ClientCAs{pool}, nil
}

func readCAs(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, err := kubeconfig.ParseCAs(pem)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return pool, nil
}

// check returns nil if r has a valid client certificate that one of the CAs has signed.
func (c *ClientCAs) check(r *http.Request) error {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return errors.New("no client certificate was presented")
	}
	leaf := r.TLS.PeerCertificates[0]
	if err := authn.VerifyClient(leaf, r.TLS.PeerCertificates[1:], c.pool.get(), time.Now()); err != nil {
		return fmt.Errorf("the client certificate of %.200q is not good: %w", leaf.Subject.CommonName, err)
	}
	return nil
}

// Admit passes requests with a valid client certificate to next, and answers others with 401
// and one line of text. It checks each request, so that removing a CA from the file also
// affects open connections.
func (c *ClientCAs) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := c.check(r); err != nil {
			csrf.Refuse(w, http.StatusUnauthorized, fmt.Sprintf("%v; come with a certificate of a CA in the hub's --serve-client-ca-file (edgehubctl: --client-certificate and --client-key)", err))
			return
		}
		next.ServeHTTP(w, r)
	})
}
