package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hubUnderTest is a Proxy on a port of its own.
type hubUnderTest struct {
	*httptest.Server
	cloud    string // the apiserver's HOST:PORT
	proxy    *Proxy
	upstream *upstream.Upstream
}

// newHub proxies to an apiserver with this handler, or to none if that is nil.
func newHub(t testing.TB, handler http.HandlerFunc) *hubUnderTest {
	t.Helper()
	return newHubWithToken(t, "", handler)
}

// newHubWithToken is newHub with a token of the node's.
func newHubWithToken(t testing.TB, token string, handler http.HandlerFunc) *hubUnderTest {
	t.Helper()
	log, creds := slog.New(slog.DiscardHandler), &upstream.Credentials{CAs: x509.NewCertPool(), Token: token}
	address := &url.URL{Scheme: "https", Host: "127.0.0.1:1"} // where nobody listens
	if handler != nil {
		api := httptest.NewUnstartedServer(handler)
		api.EnableHTTP2, api.TLS = true, &tls.Config{ClientAuth: tls.RequestClientCert}
		api.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		api.StartTLS()
		t.Cleanup(api.Close)
		creds.CAs.AddCert(api.Certificate())
		address.Host = api.Listener.Addr().String()
	}
	u, err := upstream.New([]*url.URL{address}, "node", upstream.Priority, creds, upstream.Limits{}, log, upstream.NewMetrics(prometheus.NewRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	p := newProxy(u)
	front := httptest.NewServer(p.Handler(authn.Loopback))
	front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(func() {
		front.Close()
		cancel()
		<-ended //nolint:errcheck // Run returns nil
		u.Close()
	})
	return &hubUnderTest{front, address.Host, p, u}
}

// newProxy returns a Proxy before what answers requests.
func newProxy(answers http.RoundTripper) *Proxy {
	return New(answers, nobody, func(context.Context) {}, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
}

// nobody is a Tenant of callers that are not identified.
func nobody(*http.Request) (tenant, user string) { return "", "" }

// do sends a request. Its body is closed when the test ends.
func (h *hubUnderTest) do(t *testing.T, method, path, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	res, err := h.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// bearer is the header of a request with a token.
func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// wantStatus expects a metav1.Status.
func wantStatus(t *testing.T, res *http.Response) *metav1.Status {
	t.Helper()
	status := &metav1.Status{}
	if err := json.NewDecoder(res.Body).Decode(status); err != nil {
		t.Fatalf("%d, and the body is not a Status: %v", res.StatusCode, err)
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || int(status.Code) != res.StatusCode {
		t.Errorf("incomplete Status: %+v", status)
	}
	return status
}
