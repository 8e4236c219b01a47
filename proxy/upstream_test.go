package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
)

func ok(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Write(append([]byte(r.Method+" "), body...))
}

// hangUp breaks the connection after the request was read, and before an answer.
func hangUp(_ http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	panic(http.ErrAbortHandler)
}

func TestFailover(t *testing.T) {
	large := strings.Repeat("x", maxReplay+1)
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
			first := refusedURL(t)
			if tt.first != nil {
				first = newAPIServer(t, tt.first).URL
			}
			var reached atomic.Int64
			second := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
				reached.Add(1)
				ok(w, r)
			})
			hub := newHub(t, Credentials{}, first, second.URL)
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
	api := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true // requests come one after the other
		if r.ProtoMajor == 2 {
			h2.Add(1)
		} else {
			h1.Add(1)
		}
	})
	hub := newHub(t, Credentials{}, api.URL)
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
	ca := newAuthority(t)
	cert := ca.client(t, "system:node:n1", 2, time.Now().Add(time.Hour))
	withCert, withToken := Credentials{Certificate: cert}, Credentials{Token: "node-token"}
	tests := map[string]struct {
		node   Credentials
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
	api := newAPIServer(t, whoCalls)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hub := newHub(t, tt.node, api.URL)
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
	ca := newAuthority(t)
	end := time.Now().Add(time.Hour)
	release := make(chan struct{})
	api := newAPIServer(t, func(w http.ResponseWriter, r *http.Request) {
		whoCalls(w, r)
		if r.URL.Query().Get("watch") != "" {
			http.NewResponseController(w).Flush()
			<-release
			io.WriteString(w, "later event")
		}
	})
	hub := newHub(t, Credentials{Certificate: ca.client(t, "old", 2, end)}, api.URL)
	watch, err := hub.Client().Get(hub.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()

	hub.upstream.SetCredentials(&Credentials{CAs: testServerCAs(t), Certificate: ca.client(t, "new", 2, end)})
	if got := get(t, hub, "/api", nil); got != "new|" {
		t.Errorf("after the rotation the apiserver sees %q", got)
	}
	close(release)
	if body, err := io.ReadAll(watch.Body); string(body) != "old|later event" || err != nil {
		t.Errorf("the watch from before ended with %q, %v", body, err)
	}
}

func TestOrder(t *testing.T) {
	tests := map[string]struct {
		balance Balance
		down    int // index of the server that failed just now, or -1
		after   time.Duration
		want    []string // first server of three requests
	}{
		"priority keeps to the first":                  {Priority, -1, 0, []string{"a", "a", "a"}},
		"round robin takes turns":                      {RoundRobin, -1, 0, []string{"b", "c", "a"}},
		"a server that failed is not asked first":      {Priority, 0, 0, []string{"b", "b", "b"}},
		"after a while one request finds out":          {Priority, 0, retryInterval, []string{"a", "b", "b"}},
		"round robin passes over a server that failed": {RoundRobin, 1, 0, []string{"c", "c", "a"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var urls []*url.URL
				for _, host := range []string{"a", "b", "c"} {
					urls = append(urls, &url.URL{Scheme: "https", Host: host})
				}
				u, err := NewUpstream(urls, tt.balance, &Credentials{}, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
				if err != nil {
					t.Fatal(err)
				}
				if tt.down >= 0 {
					u.servers[tt.down].failed(time.Now(), errors.New("refused"))
				}
				time.Sleep(tt.after)
				for i, want := range tt.want {
					order := u.order(time.Now())
					if len(order) != 3 || order[0].address.Host != want {
						t.Errorf("request %d: %d servers, first %s, want %s", i, len(order), order[0].address.Host, want)
					}
				}
			})
		})
	}
}

func TestLossAndReturnAreLoggedOnce(t *testing.T) {
	var lines bytes.Buffer
	s := newServer(&url.URL{Scheme: "https", Host: "a:6443"}, slog.New(slog.NewTextHandler(&lines, nil)), NewMetrics(prometheus.NewRegistry()))
	now := time.Now()
	for range 3 {
		s.failed(now, errors.New("connection refused"))
	}
	for range 3 {
		s.succeeded(now.Add(7 * time.Second))
	}
	log := lines.String()
	if strings.Count(log, "cannot be reached") != 1 || strings.Count(log, "answers again") != 1 ||
		!strings.Contains(log, "after=7s") || !strings.Contains(log, "apiserver=a:6443") {
		t.Errorf("log:\n%s", log)
	}
}

func TestNewUpstreamRefuses(t *testing.T) {
	for name, urls := range map[string][]*url.URL{
		"no apiserver": nil,
		"plain HTTP":   {{Scheme: "http", Host: "a"}},
	} {
		if _, err := NewUpstream(urls, Priority, &Credentials{}, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry())); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestRequestWithoutAuthenticatorIsLentNothing(t *testing.T) {
	if identityFrom(context.Background()) != Own {
		t.Error("a request that nobody has looked at would be the node's")
	}
}
