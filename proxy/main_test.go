package proxy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newAPIServer is an HTTPS server over HTTP/2 and HTTP/1.1, as an apiserver is,
// that asks for client certificates.
func newAPIServer(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

type connKey struct{}

// connOf is the connection that a request reached newAPIServer by.
func connOf(r *http.Request) net.Conn { return r.Context().Value(connKey{}).(net.Conn) }

// hubUnderTest is a Proxy on a port of its own.
type hubUnderTest struct {
	*httptest.Server
	proxy    *Proxy
	upstream *Upstream
	registry *prometheus.Registry
}

// newHub proxies to servers in the order given. The node's credentials are
// creds with the CA of the test servers.
func newHub(t testing.TB, creds Credentials, servers ...string) *hubUnderTest {
	t.Helper()
	return newHubWithin(t, Limits{}, creds, servers...)
}

// newHubWithin is newHub with limits of the test's own.
func newHubWithin(t testing.TB, limits Limits, creds Credentials, servers ...string) *hubUnderTest {
	t.Helper()
	creds.CAs = testServerCAs(t)
	var addresses []*url.URL
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, u)
	}
	registry := prometheus.NewRegistry()
	log := slog.New(slog.DiscardHandler)
	upstream, err := NewUpstream(addresses, "node", Priority, &creds, limits, log, NewUpstreamMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- upstream.Run(ctx) }()
	p := New(upstream, log, NewMetrics(registry))
	front := httptest.NewServer(p.Handler(Loopback))
	front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(func() {
		front.Close()
		cancel()
		<-ended //nolint:errcheck // Run returns nil
		upstream.Close()
	})
	return &hubUnderTest{front, p, upstream, registry}
}

// testServerCAs trusts the certificate that all httptest servers share.
func testServerCAs(t testing.TB) *x509.CertPool {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// refusedURL is an address where nothing listens.
func refusedURL(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "https://" + l.Addr().String()
}

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	cert, key := sign(t, template, nil)
	return &authority{cert, key}
}

// client returns a certificate for user with this key usage.
func (a *authority) client(t *testing.T, user string, usage x509.ExtKeyUsage, notAfter time.Time) *tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	cert, key := sign(t, template, a)
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func sign(t *testing.T, template *x509.Certificate, by *authority) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent, parentKey := template, key
	if by != nil {
		parent, parentKey = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}
