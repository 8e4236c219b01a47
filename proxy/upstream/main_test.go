package upstream_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/proxy"
	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/proxytest"
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
	creds.CAs = proxytest.ServerCAs(t)
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	u, err := upstream.New(proxytest.URLs(t, servers...), "node", upstream.Priority, &creds, limits, log, upstream.NewMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	front := proxytest.Serve(t, proxy.New(u, func(*http.Request) (string, string) { return "", "" }, func(context.Context) {}, log, proxy.NewMetrics(registry)).Handler(authn.Loopback), u.Run, u.Close)
	return &hubUnderTest{front, u, registry}
}
