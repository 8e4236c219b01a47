package proxy

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/proxytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	creds.CAs = proxytest.ServerCAs(t)
	registry, log := prometheus.NewRegistry(), slog.New(slog.DiscardHandler)
	upstream, err := NewUpstream(proxytest.URLs(t, servers...), "node", Priority, &creds, limits, log, NewUpstreamMetrics(registry))
	if err != nil {
		t.Fatal(err)
	}
	p := New(upstream, log, NewMetrics(registry))
	front := proxytest.Serve(t, p.Handler(authn.Loopback), upstream.Run, upstream.Close)
	return &hubUnderTest{front, p, upstream, registry}
}
