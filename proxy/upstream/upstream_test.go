package upstream_test

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

func ok(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Write(append([]byte(r.Method+" "), body...))
}

// hangUp breaks the connection after the request was read, and before an answer.
func hangUp(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	breakOff(r)
	<-r.Context().Done()
}

// TLS is counted, too, and apiservers that are not in use are.
func TestBytesAreCounted(t *testing.T) {
	const size = 100_000
	hub := newHub(t, upstream.Credentials{}, refusedURL, apiServer(t, ok))
	if sent, received := hub.upstream.Bytes(); sent != 0 || received != 0 {
		t.Errorf("%d and %d bytes before the first request", sent, received)
	}
	res, err := hub.Client().Post(hub.URL+"/x", "text/plain", strings.NewReader(strings.Repeat("x", size)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err != nil || n != size+int64(len("POST ")) {
		t.Fatalf("the answer has %d bytes: %v", n, err)
	}
	sent, received := hub.upstream.Bytes()
	for name, n := range map[string]int64{"sent": sent, "received": received} {
		if n <= size || n > 2*size {
			t.Errorf("%d bytes %s, want some more than %d", n, name, size)
		}
	}
}

func TestFailover(t *testing.T) {
	large := strings.Repeat("x", limits.MaxReplay+1)
	tests := map[string]struct {
		first  http.HandlerFunc // nil: nothing listens
		method string
		body   string
		want   int
		second int64 // requests that reach the second apiserver
	}{
		"a read moves on when the first apiserver refuses":             {nil, http.MethodGet, "", 200, 1},
		"a write moves on when the first apiserver refuses":            {nil, http.MethodPost, "body", 200, 1},
		"a large write moves on whole":                                 {nil, http.MethodPut, large, 200, 1},
		"a read moves on when the first apiserver hangs up":            {hangUp, http.MethodGet, "", 200, 1},
		"a write that may have been carried out is never sent twice":   {hangUp, http.MethodPost, "body", 504, 0},
		"a large write that may have been carried out is never resent": {hangUp, http.MethodPatch, large, 504, 0},
		"a DELETE that may have been carried out is never resent":      {hangUp, http.MethodDelete, "", 504, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			first := refusedURL
			if tt.first != nil {
				first = apiServer(t, tt.first)
			}
			var reached atomic.Int64
			second := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
				reached.Add(1)
				ok(w, r)
			})
			hub := newHub(t, upstream.Credentials{}, first, second)
			req, _ := http.NewRequest(tt.method, hub.URL+"/x", strings.NewReader(tt.body))
			res, err := hub.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			if res.StatusCode != tt.want || reached.Load() != tt.second {
				t.Errorf("%d, %d requests at the second apiserver; want %d and %d (%.200s)", res.StatusCode, reached.Load(), tt.want, tt.second, body)
			}
			if tt.want == 200 && string(body) != tt.method+" "+tt.body {
				t.Errorf("the second apiserver got another body (%d bytes, sent %d)", len(body)-len(tt.method)-1, len(tt.body))
			}
		})
	}
}

func TestHTTP2ConnectionIsReused(t *testing.T) {
	var h1, h2 atomic.Int64
	connections := make(map[string]bool)
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true // requests come one after the other
		if r.ProtoMajor == 2 {
			h2.Add(1)
		} else {
			h1.Add(1)
		}
	})
	hub := newHub(t, upstream.Credentials{}, api)
	for range 20 {
		res, err := hub.Client().Get(hub.URL + "/api")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	if h2.Load() != 20 || h1.Load() != 0 || len(connections) != 1 {
		t.Errorf("%d requests by HTTP/2, %d by HTTP/1.1 over %d connections; want 20, 0, 1", h2.Load(), h1.Load(), len(connections))
	}
}

// whoCalls answers with the name in the client certificate and the token.
func whoCalls(w http.ResponseWriter, r *http.Request) {
	name := "nobody"
	if len(r.TLS.PeerCertificates) > 0 {
		name = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	io.WriteString(w, name+"|"+r.Header.Get("Authorization"))
}

func TestIdentityIsLentOnlyToCallersWithoutCredentials(t *testing.T) {
	withCert, withToken := upstream.Credentials{Certificate: selfSigned(t, "system:node:n1", x509.Certificate{})}, upstream.Credentials{Token: "node-token"}
	tests := map[string]struct {
		node   upstream.Credentials
		header http.Header
		want   string
	}{
		"no credentials: the node's certificate":       {withCert, nil, "system:node:n1|"},
		"no credentials: the node's token":             {withToken, nil, "nobody|Bearer node-token"},
		"a token is passed on without a certificate":   {withCert, http.Header{"Authorization": {"Bearer pod"}}, "nobody|Bearer pod"},
		"a token is not replaced by the node's":        {withToken, http.Header{"Authorization": {"Bearer pod"}}, "nobody|Bearer pod"},
		"basic auth is passed on":                      {withCert, http.Header{"Authorization": {"Basic eDp5"}}, "nobody|Basic eDp5"},
		"an empty Authorization is lent nothing":       {withCert, http.Header{"Authorization": {""}}, "nobody|"},
		"a WebSocket token is a token":                 {withCert, http.Header{"Sec-Websocket-Protocol": {"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.cG9k"}}, "nobody|"},
		"a WebSocket without token is the node":        {withCert, http.Header{"Sec-Websocket-Protocol": {"v5.channel.k8s.io"}}, "system:node:n1|"},
		"a token in an upgrade is lent nothing either": {withCert, http.Header{"Authorization": {"Bearer pod"}, "Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}, "nobody|Bearer pod"},
	}
	api := apiServer(t, whoCalls)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hub := newHub(t, tt.node, api)
			for range 2 { // also on a connection that was used by the other kind of caller
				if got := get(t, hub, "/api", tt.header); got != tt.want {
					t.Errorf("the apiserver saw %q, want %q", got, tt.want)
				}
				get(t, hub, "/api", nil)
			}
		})
	}
}

func get(t *testing.T, hub *hubUnderTest, path string, header http.Header) string {
	t.Helper()
	req, _ := http.NewRequest(http.MethodGet, hub.URL+path, nil)
	for k, v := range header {
		req.Header[k] = v
	}
	res, err := hub.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestRotatedCertificateIsUsedAtOnceAndOpenWatchesGoOn(t *testing.T) {
	release := make(chan struct{})
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		whoCalls(w, r)
		if r.URL.Query().Get("watch") != "" {
			http.NewResponseController(w).Flush()
			<-release
			io.WriteString(w, "later event")
		}
	})
	hub := newHub(t, upstream.Credentials{Certificate: selfSigned(t, "old", x509.Certificate{})}, api)
	watch, err := hub.Client().Get(hub.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()

	hub.upstream.SetCredentials(&upstream.Credentials{CAs: serverCAs(), Certificate: selfSigned(t, "new", x509.Certificate{})})
	if got := get(t, hub, "/api", nil); got != "new|" {
		t.Errorf("after the rotation the apiserver sees %q", got)
	}
	close(release)
	if body, err := io.ReadAll(watch.Body); string(body) != "old|later event" || err != nil {
		t.Errorf("the watch from before ended with %q, %v", body, err)
	}
}

func TestABlackHoleIsNoticedThoughItsClientsGiveUpFirst(t *testing.T) {
	inCloud(t, idle, append(local(), local()...), func(t *testing.T, c *cloud) {
		c.networks[0].set(func(n *fakeNetwork) { n.stopped = true })
		hurried, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		if res, err := c.send(hurried, http.MethodGet, pods, nil); err == nil {
			res.Body.Close()
			t.Errorf("answered %s, by nobody", res.Status)
		}
		time.Sleep(bound)
		if c.upstream.State().Servers[0].Err == nil {
			t.Error("it does not count as down")
		}
		if _, took := c.mustGet(pods); took > 100*time.Millisecond {
			t.Errorf("the second apiserver answers after %v", took)
		}
	})
}

func TestAnApiserverThatIsDownIsNotAskedUntilItIsBack(t *testing.T) {
	inCloud(t, idle, append(local(), local()...), func(t *testing.T, c *cloud) {
		c.networks[0].set(func(n *fakeNetwork) { n.hole = true })
		c.mustGet(pods)
		if _, took := c.mustGet(pods); took > 100*time.Millisecond {
			t.Errorf("it was asked although it is down: the second answers after %v", took)
		}
		c.networks[0].set(func(n *fakeNetwork) { n.hole = false })
		time.Sleep(bound)
		c.networks[1].set(func(n *fakeNetwork) { n.hole = true })
		if _, took := c.mustGet(pods); took > 100*time.Millisecond {
			t.Errorf("the second is asked although the first is back, which answers after %v", took)
		}
	})
}

func TestOneBrokenRequestDoesNotMakeTheApiserverCountAsDown(t *testing.T) {
	api := apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/panics" {
			panic(http.ErrAbortHandler) // resets the stream; the connection stays
		}
		ok(w, r)
	})
	hub := newHub(t, upstream.Credentials{}, api)
	if text := get(t, hub, "/panics", nil); !strings.Contains(text, `"code":502`) || strings.Contains(text, "cloud cannot be reached") {
		t.Errorf("got %s", text)
	}
	if err := hub.upstream.State().Servers[0].Err; err != nil {
		t.Errorf("it counts as down: %v", err)
	}
}

func TestHTTPProxyThatRefusesIsNoDelivery(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	t.Cleanup(proxy.Close)
	address, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	hub := newHub(t, upstream.Credentials{Proxy: http.ProxyURL(address)}, "https://192.0.2.1:6443")
	res, err := hub.Client().Post(hub.URL+"/x", "text/plain", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a POST that the HTTP proxy refused to connect for: %d, want 503", res.StatusCode)
	}
	want := "the HTTP proxy " + address.Host + " answers 502 Bad Gateway when the hub asks for 192.0.2.1:6443"
	if err := hub.upstream.State().Servers[0].Err; err == nil || err.Error() != want {
		t.Errorf("it is down, as it says, because %q", err)
	}
}

func TestNewUpstreamRefuses(t *testing.T) {
	for name, urls := range map[string][]*url.URL{
		"no apiserver": nil,
		"plain HTTP":   {{Scheme: "http", Host: "a"}},
	} {
		if _, err := upstream.New(urls, "node", upstream.Priority, &upstream.Credentials{}, upstream.Limits{}, slog.New(slog.DiscardHandler), upstream.NewMetrics(prometheus.NewRegistry())); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestAnAPIServerSendsLittleAheadOfAClientThatDoesNotRead(t *testing.T) {
	var sent atomic.Int64
	h := newHub(t, upstream.Credentials{}, apiServer(t, func(w http.ResponseWriter, r *http.Request) {
		for chunk, err := make([]byte, 32<<10), error(nil); err == nil && r.URL.Path == "/openapi/v2"; {
			var n int
			n, err = w.Write(chunk)
			sent.Add(int64(n))
		}
	}))
	open := func(path string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(authn.WithIdentity(t.Context(), authn.Caller), http.MethodGet, path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := h.upstream.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	defer open("/openapi/v2").Body.Close()
	until(t, "half of what may be ahead was sent", func() bool { return sent.Load() >= upstream.StreamWindow/2 })
	// What is not sent while the same apiserver answers a hundred other requests is not sent at all.
	for before, answered := int64(-1), 0; answered < 100; answered++ {
		open("/version").Body.Close()
		if now := sent.Load(); now != before {
			before, answered = now, 0
		}
	}
	const aLittleMore = 64 << 10
	if n := sent.Load(); n > upstream.StreamWindow+aLittleMore {
		t.Errorf("%d bytes were sent, want %d", n, upstream.StreamWindow)
	}
}
