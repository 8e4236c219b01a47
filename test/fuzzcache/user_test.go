package fuzzcache

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/edgehub-io/edgehub/test/internal/fakeapiserver"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// user is whom the hub knows a client as, with what all its clients have seen.
type user struct {
	w          *world
	name       string
	namespaces []string // that it may read; "" is all
	token      atomic.Pointer[string]
	sight      *sight
	queries    []*query
	// revocable users lose their access now and then. They have no watches, which would
	// be let in again without their clients' knowing.
	revocable bool
}

// reads reports whether the user may ever read a namespace.
func (u *user) reads(namespace string) bool {
	for _, n := range u.namespaces {
		if n == "" || n == namespace {
			return true
		}
	}
	return false
}

// client is one program of a user's, with connections of its own.
type client struct {
	*user
	name string
	base string
	http *http.Client
}

// newClient makes a client on the port without TLS, or on the other one.
func (u *user) newClient(name string, secure bool) *client {
	c := &client{user: u, name: u.name + "/" + name, base: u.w.hub.Plain, http: rawclient.New(nil, false)}
	switch {
	case u.name == "node" && u.w.identity != nil:
		c.base, c.http = u.w.secure(true, *u.w.identity)
	case secure:
		c.base, c.http = u.w.secure(true)
	}
	plain := c.http.Transport
	c.http.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		if token := u.token.Load(); token != nil {
			r = r.Clone(r.Context())
			r.Header.Set("Authorization", "Bearer "+*token)
		}
		return plain.RoundTrip(r)
	})
	return c
}

// secure is the hub's port with TLS, for a client that presents certificates.
func (w *world) secure(http2 bool, certificates ...tls.Certificate) (base string, c *http.Client) {
	roots := rawclient.Roots(w.t, filepath.Join(w.hub.Root, "pki", "serving.crt"))
	return fmt.Sprintf("https://127.0.0.1:%d", w.hub.SecurePort),
		rawclient.New(&tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS12}, http2)
}

// with returns a client that sends further headers, over the same connections.
func (c *client) with(header http.Header) *client {
	other, carry := *c, c.http.Transport
	other.http = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		maps.Copy(r.Header, header)
		return carry.RoundTrip(r)
	})}
	return &other
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is all that a client sees of a request that is no watch.
type answer struct {
	code         int
	header       http.Header
	body         []byte
	err          error
	began, ended time.Time
	weather      weather
}

func (a *answer) String() string {
	if a.code == 0 {
		return a.err.Error()
	}
	s := fmt.Sprintf("%d after %v, %v: %.300q", a.code, a.ended.Sub(a.began).Round(time.Millisecond), a.weather, a.body)
	if a.err != nil {
		s += ", then " + a.err.Error()
	}
	return s
}

// requestTimeout is how long any answer may take: a black hole is distinguished from a slow
// apiserver within seconds, and the machine is busy.
const requestTimeout = 40 * time.Second

func (c *client) do(ctx context.Context, method, path, accept, contentType string, body []byte) (a *answer) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a = &answer{began: time.Now()}
	defer func() {
		a.ended = time.Now()
		a.weather = c.w.weatherOf(a.began, a.ended)
	}()
	res, err := c.open(ctx, method, path, accept, contentType, body)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	if a.code, a.header = res.StatusCode, res.Header; a.code == http.StatusSwitchingProtocols {
		return a
	}
	a.body, a.err = io.ReadAll(res.Body)
	return a
}

func (c *client) open(ctx context.Context, method, path, accept, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Accept": accept, "Content-Type": contentType} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	return c.http.Do(req)
}

// usual reports whether an answer has to be looked at, and complains about one that may
// not be: no answer while nothing was wrong, or a code that nobody expects.
func (c *client) usual(ctx context.Context, what string, a *answer, expected ...int) bool {
	if ctx.Err() != nil {
		return false
	}
	if a.err != nil {
		if a.weather == fair {
			c.w.report("no answer though nothing was wrong", "%s: %s: %v", c.name, what, a)
		}
		return false
	}
	for _, code := range expected {
		if a.code == code {
			return true
		}
	}
	switch {
	case a.code == http.StatusTooManyRequests:
	case a.weather != fair && (a.code == http.StatusServiceUnavailable || a.code == http.StatusGatewayTimeout || a.code == http.StatusBadGateway):
		status, err := fakeapiserver.Decode(a.body)
		if s, ok := status.(*metav1.Status); a.byHub() && (err != nil || !ok || int(s.Code) != a.code) {
			c.w.report("a refusal that no client can read", "%s: %s: %v", c.name, what, a)
		}
	case a.code == http.StatusGatewayTimeout && strings.Contains(string(a.body), "Too large resource version"):
	case a.code == http.StatusUnauthorized && a.weather != fair: // a token that was never used while the cloud was there
	case a.code == http.StatusForbidden && c.revocable:
	default:
		c.w.report(fmt.Sprintf("%d that nobody expects", a.code), "%s: %s: %v", c.name, what, a)
	}
	return false
}
