package upstream_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// cloud is a set of apiservers in memory, each behind its own network, and an Upstream to them.
// It runs in a synctest bubble, where seconds cost nothing and are exact.
type cloud struct {
	t        *testing.T
	networks []*fakeNetwork
	upstream *upstream.Upstream
	log      *bytes.Buffer
	registry *prometheus.Registry
	creds    *upstream.Credentials
	later    []func() // at the end
}

// inCloud runs body in a bubble with an apiserver that answers with handler
// behind each of the networks.
func inCloud(t *testing.T, handler http.HandlerFunc, networks []*fakeNetwork, body func(t *testing.T, c *cloud)) {
	t.Helper()
	cert := selfSigned(t, "apiserver", x509.Certificate{
		DNSNames: []string{"api-0.test", "api-1.test", "api-2.test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{t: t, log: &bytes.Buffer{}, registry: prometheus.NewRegistry()}
		var addresses []*url.URL
		for i, n := range networks {
			n = newFakeNetwork(n.delay, n.rate) // a sync.Cond belongs to one bubble
			c.networks = append(c.networks, n)
			addresses = append(addresses, &url.URL{Scheme: "https", Host: fmt.Sprintf("api-%d.test:6443", i)})
			server := &http.Server{
				Handler:   handler,
				TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: protocols(t)},
				ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
			}
			done := make(chan struct{})
			go func() { defer close(done); _ = server.ServeTLS(n, "", "") }()
			defer func() {
				n.set(func(n *fakeNetwork) { n.hole, n.stopped = false, false })
				_ = server.Close()
				<-done
			}()
		}
		roots := x509.NewCertPool()
		roots.AddCert(cert.Leaf)
		var err error
		c.creds = &upstream.Credentials{CAs: roots}
		c.upstream, err = upstream.New(addresses, "node", upstream.Priority, c.creds, upstream.Limits{}, slog.New(slog.NewTextHandler(c.log, nil)), upstream.NewMetrics(c.registry))
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range c.networks {
			c.upstream.SetNetwork(i, n.network())
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.upstream.Run(ctx) }()
		defer func() {
			cancel()
			<-ended //nolint:errcheck // Run returns nil
			c.upstream.Close()
			c.upstream.CloseConns(errors.New("the test is over"))
			for _, end := range c.later {
				end()
			}
			time.Sleep(time.Minute) // of the bubble: all timers run out
		}()
		body(t, c)
	})
}

// protocols returns the protocols of the apiservers of a test, from its name.
func protocols(t *testing.T) []string {
	if strings.Contains(t.Name(), "HTTP/1.1") {
		return []string{"http/1.1"}
	}
	return []string{"h2", "http/1.1"}
}

var paths = request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// send sends a request as the node, like Proxy.
func (c *cloud) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		c.t.Fatal(err)
	}
	info, err := paths.NewRequestInfo(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return c.upstream.RoundTrip(req.WithContext(request.WithRequestInfo(authn.WithIdentity(ctx, authn.Node), info)))
}

// get returns the code, the size of the body and how long that took.
func (c *cloud) get(path string) (code, size int, took time.Duration, err error) {
	c.t.Helper()
	began := time.Now()
	res, err := c.send(c.t.Context(), http.MethodGet, path, nil)
	if err != nil {
		return 0, 0, time.Since(began), err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	return res.StatusCode, int(n), time.Since(began), err
}

// mustGet expects 200.
func (c *cloud) mustGet(path string) (size int, took time.Duration) {
	c.t.Helper()
	code, size, took, err := c.get(path)
	if err != nil || code != http.StatusOK {
		c.t.Fatalf("GET %s: %d, %v after %v; log:\n%s", path, code, err, took, c.log)
	}
	return size, took
}

// mustFail expects an UnreachableError within bound.
func (c *cloud) mustFail(path string, bound time.Duration) {
	c.t.Helper()
	code, _, took, err := c.get(path)
	var unreachable *upstream.UnreachableError
	if !errors.As(err, &unreachable) || took > bound {
		c.t.Fatalf("GET %s: %d, %v after %v; want an UnreachableError within %v; log:\n%s", path, code, err, took, bound, c.log)
	}
}

func (c *cloud) isLost() bool {
	select {
	case <-c.upstream.Lost(c.t.Context()):
		return true
	default:
		return false
	}
}

const pods = "/api/v1/pods"

// bound is the longest time until a read is answered or fails.
const bound = 3 * time.Second

func local() []*fakeNetwork { return []*fakeNetwork{{delay: time.Millisecond}} }
func satellite() []*fakeNetwork {
	return []*fakeNetwork{{delay: 750 * time.Millisecond, rate: 125_000}}
}

func TestLossIsNoticedWithinTheBound(t *testing.T) {
	stop := func(n *fakeNetwork) { n.stopped = true }
	hole := func(n *fakeNetwork) { n.hole = true }
	tests := map[string]struct {
		networks []*fakeNetwork
		warm     bool
		lose     func(*fakeNetwork)
	}{
		"a black hole under an open connection":                              {local(), true, hole},
		"a black hole at the first attempt to connect":                       {local(), false, hole},
		"an apiserver that is stopped":                                       {local(), true, stop},
		"an apiserver that was stopped before the first request":             {local(), false, stop},
		"a black hole on a satellite link":                                   {satellite(), true, hole},
		"a black hole before three apiservers":                               {append(append(local(), local()...), local()...), true, hole},
		"a black hole before three apiservers, at the first attempt":         {append(append(local(), local()...), local()...), false, hole},
		"three apiservers that are stopped":                                  {append(append(local(), local()...), local()...), true, stop},
		"a black hole before three apiservers by HTTP/1.1":                   {append(append(local(), local()...), local()...), true, hole},
		"a black hole under an open connection by HTTP/1.1":                  {local(), true, hole},
		"an apiserver that is stopped by HTTP/1.1":                           {local(), true, stop},
		"an apiserver that was stopped before the first request by HTTP/1.1": {local(), false, stop},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inCloud(t, ok, tt.networks, func(t *testing.T, c *cloud) {
				if tt.warm {
					c.mustGet(pods)
				}
				for _, n := range c.networks {
					n.set(tt.lose)
				}
				lost := c.upstream.Lost(c.t.Context())
				if c.upstream.IsUndecided(t.Context()) == tt.warm {
					t.Errorf("undecided: %t, though it has answered: %t", !tt.warm, tt.warm)
				}
				c.mustFail(pods, bound)
				if c.upstream.IsUndecided(t.Context()) {
					t.Error("undecided, though it is lost")
				}
				select {
				case <-lost:
				default:
					t.Errorf("the channel of Lost is open; log:\n%s", c.log)
				}
				c.mustFail(pods, 0)
				if state := c.upstream.State(); state.Up || state.Servers[0].Up || state.Servers[0].Err == nil {
					t.Errorf("state %+v", state)
				}
			})
		})
	}
}

func TestWhatIsSlowIsNoLoss(t *testing.T) {
	const size = 7_500_000 // bytes: a minute at 1 Mbit/s
	handler := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		case r.URL.Path == "/api/v1/slow":
			time.Sleep(time.Minute)
		case r.URL.Path == "/api/v1/halting":
			for range 6 {
				io.WriteString(w, "item")
				http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Second)
			}
		case r.URL.Path == "/api/v1/large":
			w.Write(make([]byte, size))
		}
	}
	tests := map[string]struct {
		networks []*fakeNetwork
		ask      func(c *cloud) error
	}{
		"a response that takes a minute":                                 {local(), get1("/api/v1/slow")},
		"a response that takes a minute by HTTP/1.1":                     {local(), get1("/api/v1/slow")},
		"a response that takes a minute on a satellite link":             {satellite(), get1("/api/v1/slow")},
		"a response that takes a minute on a satellite link by HTTP/1.1": {satellite(), get1("/api/v1/slow")},
		"a response body that pauses":                                    {satellite(), get1("/api/v1/halting")},
		"a response body that takes a minute to receive":                 {satellite(), get1("/api/v1/large")},
		"a response body that takes a minute to receive by HTTP/1.1":     {satellite(), get1("/api/v1/large")},
		"a request behind a body that takes a minute to receive":         {satellite(), alongside("/api/v1/large", 5*time.Second, "/api/v1/slow")},
		"a request body that takes a minute to send":                     {satellite(), post(size)},
		"a request body that takes a minute to send by HTTP/1.1":         {satellite(), post(size)},
		"a request behind a body that takes a minute to send":            {satellite(), postAlongside(size, "/api/v1/slow")},
		"three apiservers, one of which takes a minute":                  {append(append(satellite(), satellite()...), satellite()...), get1("/api/v1/slow")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			inCloud(t, handler, tt.networks, func(t *testing.T, c *cloud) {
				for range 2 { // on a new connection, and on one that was used
					if err := tt.ask(c); err != nil {
						t.Fatalf("%v; log:\n%s", err, c.log)
					}
				}
				if c.isLost() || strings.Contains(c.log.String(), "WARN") {
					t.Errorf("slowness was mistaken for a loss; log:\n%s", c.log)
				}
			})
		})
	}
}

func get1(path string) func(c *cloud) error {
	return func(c *cloud) error {
		code, _, took, err := c.get(path)
		if err == nil && (code != http.StatusOK || took < 30*time.Second) {
			err = fmt.Errorf("%d after %v", code, took)
		}
		return err
	}
}

func post(size int) func(c *cloud) error {
	return func(c *cloud) error {
		res, err := c.send(c.t.Context(), http.MethodPost, pods, bytes.NewReader(make([]byte, size)))
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if got, err := io.ReadAll(res.Body); err != nil || string(got) != fmt.Sprint(size) {
			return fmt.Errorf("%s of %d bytes arrived: %w", got, size, err)
		}
		return nil
	}
}

// alongside requests one path, and another one later.
func alongside(first string, later time.Duration, second string) func(c *cloud) error {
	return both(get1(first), later, get1(second))
}

func postAlongside(size int, path string) func(c *cloud) error {
	return both(post(size), 5*time.Second, get1(path))
}

func both(first func(*cloud) error, later time.Duration, second func(*cloud) error) func(*cloud) error {
	return func(c *cloud) error {
		done := make(chan error, 1)
		go func() { done <- first(c) }()
		time.Sleep(later)
		err := second(c)
		return errors.Join(<-done, err)
	}
}

// An apiserver would authenticate and log a request that its handler sees.
func TestAPingIsAnsweredByTheServerItself(t *testing.T) {
	for _, protocol := range []string{"HTTP/2", "HTTP/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			var asked atomic.Int64
			handler := func(http.ResponseWriter, *http.Request) {
				asked.Add(1)
				time.Sleep(time.Minute)
			}
			inCloud(t, handler, local(), func(t *testing.T, c *cloud) {
				if err := get1("/api/v1/slow")(c); err != nil {
					t.Fatal(err)
				}
				if n := asked.Load(); n != 1 {
					t.Errorf("the apiserver's handler saw %d requests, want the client's alone", n)
				}
			})
		})
	}
}
