package upstream_test

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

	"github.com/edgehub-io/edgehub/proxy"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hubUnderTest is a proxy.Proxy before an Upstream, on a port of its own.
type hubUnderTest struct {
	*httptest.Server
	upstream *upstream.Upstream
	registry *prometheus.Registry
}

// newHub proxies to servers in the order given. The node's credentials are
// creds with the CA of the test servers.
func newHub(t testing.TB, creds upstream.Credentials, servers ...string) *hubUnderTest {
	t.Helper()
	return newHubWithin(t, upstream.Limits{}, creds, servers...)
}

// newHubWithin is newHub with limits of the test's own.
func newHubWithin(t testing.TB, limits upstream.Limits, creds upstream.Credentials, servers ...string) *hubUnderTest {
	t.Helper()
	creds.CAs = serverCAs()
	var addresses []*url.URL
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, u)
	}
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	u, err := upstream.New(addresses, "node", upstream.Priority, &creds, limits, log, upstream.NewMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	front := httptest.NewServer(proxy.New(u, func(*http.Request) (string, string) { return "", "" }, func(context.Context) {}, log, proxy.NewMetrics(registry)).Handler(authn.Loopback))
	front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(func() {
		front.Close()
		cancel()
		<-ended //nolint:errcheck // Run returns nil
		u.Close()
	})
	return &hubUnderTest{front, u, registry}
}

// refusedURL is an address where nobody listens.
const refusedURL = "https://127.0.0.1:1"

// apiServer returns the address of an HTTPS server that, like an apiserver, speaks HTTP/2 and HTTP/1.1 and
// requests client certificates.
func apiServer(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	s := unstartedAPIServer(handler)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func unstartedAPIServer(handler http.HandlerFunc) *httptest.Server {
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2, s.TLS = true, &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	return s
}

type connKey struct{}

// breakOff closes the connection of a request, and with it whatever else is on the connection.
func breakOff(r *http.Request) { r.Context().Value(connKey{}).(net.Conn).Close() }

// serverCAs trusts the certificate that all httptest servers share.
func serverCAs() *x509.CertPool {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

// selfSigned returns a certificate of this name by itself.
func selfSigned(t testing.TB, name string, template x509.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.Subject, template.NotAfter = big.NewInt(1), pkix.Name{CommonName: name}, time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// until waits until another goroutine has made holds true.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}
