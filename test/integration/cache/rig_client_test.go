package cache

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/cluster"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// What clients accept.
const (
	protobuf = "application/vnd.kubernetes.protobuf"
	asJSON   = "application/json"
	kubelet  = "application/vnd.kubernetes.protobuf,application/json"
	table    = "application/json;as=Table;v=v1;g=meta.k8s.io"
	metaList = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// client makes requests and adds nothing to them.
type client struct {
	url       string
	http      *http.Client
	token     string // or empty
	userAgent string // or empty, for Go's
}

func newClient(url string, config *tls.Config, http2 bool) *client {
	return &client{url: url, http: rawclient.New(config, http2)}
}

// newDirectClient is the administrator's.
func newDirectClient(c *cluster.Cluster) (*client, error) {
	config, err := rest.TLSConfigFor(c.AdminConfig())
	if err != nil {
		return nil, err
	}
	return newClient(c.ServerURL(), config, true), nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// named is the same client with another User-Agent.
func (c *client) named(userAgent string) *client {
	out := *c
	out.userAgent = userAgent
	return &out
}

// request is what a test asks for; empty is GET, and whatever is served.
type request struct {
	method, path        string
	accept, contentType string
	gzip                bool
	body                []byte
}

// answer is all that a client sees.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // of the request, or of reading the body
	took   time.Duration
}

func (a answer) String() string {
	if a.status == 0 {
		return a.err.Error()
	}
	s := fmt.Sprintf("%d after %v: %.400q", a.status, a.took.Round(time.Millisecond), a.body)
	if a.err != nil {
		s += ", then " + a.err.Error()
	}
	return s
}

func (c *client) open(ctx context.Context, r request) (*http.Response, error) {
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Accept": r.accept, "Content-Type": r.contentType, "User-Agent": c.userAgent} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if r.gzip {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

// try makes a request and reads the answer to its end, however it ends.
func (c *client) try(ctx context.Context, r request) answer {
	began := time.Now()
	res, err := c.open(ctx, r)
	if err != nil {
		return answer{err: err, took: time.Since(began)}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, body, err, time.Since(began)}
}

// do makes a request that has to be answered, with whatever status.
func (c *client) do(t *testing.T, r request) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a := c.try(ctx, r)
	if a.err != nil {
		t.Fatalf("%s %s: %v", r.method, r.path, a)
	}
	return a
}

// get makes a request that has to be answered with 200.
func (c *client) get(t *testing.T, path, accept string) answer {
	t.Helper()
	a := c.do(t, request{path: path, accept: accept})
	if a.status != http.StatusOK {
		t.Fatalf("GET %s: %v", path, a)
	}
	return a
}

// refused makes a request that has to be answered with this status.
func (c *client) refused(t *testing.T, r request, status int) answer {
	t.Helper()
	a := c.do(t, r)
	if a.status != status {
		t.Errorf("%s %s (%s): want %d, got %v", r.method, r.path, r.accept, status, a)
	}
	return a
}

// rootsOnly trusts the apiserver and shows it no certificate.
func rootsOnly(t *testing.T) *tls.Config {
	return &tls.Config{RootCAs: rawclient.Roots(t, env.CAFile())}
}
