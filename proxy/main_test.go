package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/proxytest"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hubUnderTest is a Proxy on a port of its own.
type hubUnderTest struct {
	*httptest.Server
	proxy    *Proxy
	upstream *upstream.Upstream
	registry *prometheus.Registry
}

// newHub proxies to servers in the order given. The node's credentials are
// creds with the CA of the test servers.
func newHub(t testing.TB, creds upstream.Credentials, servers ...string) *hubUnderTest {
	t.Helper()
	creds.CAs = proxytest.ServerCAs(t)
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	u, err := upstream.New(proxytest.URLs(t, servers...), "node", upstream.Priority, &creds, upstream.Limits{}, log, upstream.NewMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	p := New(u, nobody, func(context.Context) {}, log, NewMetrics(registry))
	front := proxytest.Serve(t, p.Handler(authn.Loopback), u.Run, u.Close)
	return &hubUnderTest{front, p, u, registry}
}

// nobody is a Tenant of callers that are not identified.
func nobody(*http.Request) (tenant, user string) { return "", "" }
