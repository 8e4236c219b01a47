// Package rawclient makes HTTP clients that add nothing to requests: no gzip of
// their own, and no HTTP/2 unless asked. Ask is for tests that read any answer.
package rawclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
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

// Ask sends a request without a body, and returns the code and the body of the answer; 0 and
// the reason where there was none.
func Ask(ctx context.Context, method, url string) (code int, body string) {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		return 0, err.Error()
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
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
