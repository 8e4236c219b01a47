package certificate

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/test/internal/poll"
	"github.com/edgehub-io/edgehub/test/internal/rawclient"
)

// answer is what a request was answered.
type answer struct {
	code int
	body string
}

func (a answer) String() string { return fmt.Sprintf("%d %.600s", a.code, a.body) }

// caller sends requests to one port of the hub.
type caller struct {
	url    string
	token  string
	client *http.Client
}

// plain calls the port where everybody is the node.
func (n *node) plain() *caller { return n.caller(n.Plain, "", nil) }

// secure calls the TLS port, with a certificate or a token.
func (n *node) secure(certFile, keyFile, token string) *caller {
	n.t.Helper()
	config := &tls.Config{RootCAs: rawclient.Roots(n.t, filepath.Join(n.Root, "pki", "serving.crt"))} // what kubelet pins
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			n.t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return n.caller(fmt.Sprintf("https://127.0.0.1:%d", n.SecurePort), token, config)
}

func (n *node) caller(url, token string, config *tls.Config) *caller {
	c := &caller{url, token, rawclient.New(config, config != nil)}
	n.t.Cleanup(c.client.CloseIdleConnections)
	return c
}

func (c *caller) open(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.client.Do(req)
}

// do returns code 0 where nothing is answered.
func (c *caller) do(t *testing.T, method, path, body string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Patience)
	defer cancel()
	res, err := c.open(ctx, method, path, body)
	if err != nil {
		return answer{0, err.Error()}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{0, err.Error()}
	}
	return answer{res.StatusCode, string(text)}
}

func (c *caller) get(t *testing.T, path string) answer {
	t.Helper()
	return c.do(t, http.MethodGet, path, "")
}
