// Package rawclient makes HTTP clients that add nothing to requests: no gzip of
// their own, and no HTTP/2 unless asked.
package rawclient

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"testing"
)

// New returns a client that speaks either HTTP/1.1 or HTTP/2. Its idle connections
// are the caller's to close.
func New(config *tls.Config, http2 bool) *http.Client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, Protocols: protocols, DisableCompression: true}}
}

// Roots trusts the certificates in a file, in PEM.
func Roots(t testing.TB, file string) *x509.CertPool {
	t.Helper()
	pem, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(pem) {
		t.Fatalf("%s holds no certificate", file)
	}
	return p
}
