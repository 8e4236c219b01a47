package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/edgehub-io/edgehub/test/internal/hubproc"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

const (
	asJSON   = "application/json"
	protobuf = "application/vnd.kubernetes.protobuf"
)

// client is a port, and the protocol that is spoken there.
type client struct {
	name string
	url  string
	http *http.Client
}

func newClient(t *testing.T, name, url string, config *tls.Config, http2 bool) *client {
	t.Helper()
	c := &client{name, url, rawclient.New(config, http2)}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// newDirectClient talks to the apiserver, and has no credentials.
func newDirectClient(t *testing.T) *client {
	t.Helper()
	config, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: env.AdminConfig().CAData}})
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, "apiserver", env.ServerURL(), config, true)
}

// newPorts returns a client for each way to reach the hub's proxy. certificates are those
// that a client presents on the port with TLS.
func newPorts(t *testing.T, h *hubproc.Hub, certificates ...tls.Certificate) []*client {
	t.Helper()
	secure := "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(h.SecurePort))
	config := &tls.Config{RootCAs: rawclient.Roots(t, filepath.Join(h.Root, "pki", "serving.crt")), Certificates: certificates, MinVersion: tls.VersionTLS12}
	return []*client{
		newClient(t, "plain port", h.Plain, nil, false),
		newClient(t, "TLS port", secure, config, false),
		newClient(t, "TLS port, HTTP/2", secure, config.Clone(), true),
	}
}

// request is a GET without a body, unless it says otherwise.
type request struct {
	method, path string
	header       http.Header
	body         []byte
}

// answer is all that a caller sees.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // of the request, or of reading the body
}

func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%d, %v", a.status, a.err)
	}
	return fmt.Sprintf("%d: %.300q", a.status, a.body)
}

func (c *client) try(ctx context.Context, r request) answer {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if r.method == "" {
		r.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, r.method, c.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{err: err}
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	res, err := c.http.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return answer{status: res.StatusCode, header: res.Header}
	}
	body, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, body, err}
}

// bearer is the header of a caller with a token.
func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// accepting is a header with the representation that is asked for.
func accepting(h http.Header, accept string) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	h.Set("Accept", accept)
	return h
}
