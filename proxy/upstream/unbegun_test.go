package upstream

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// breaksFirst is a transport whose first connection breaks before the request is begun.
type breaksFirst struct {
	tries int
	body  string // that arrived
}

func (b *breaksFirst) RoundTrip(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
	if b.tries++; b.tries == 1 {
		return nil, errors.New(unbegunHTTP2)
	}
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		b.body = string(body)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// Nothing of the request was sent, so that even a write is sent again.
func TestARequestThatWasNotBegunIsSentAgain(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		address := &url.URL{Scheme: "https", Host: "192.0.2.1:6443"}
		u, err := New([]*url.URL{address}, "node", RoundRobin, &Credentials{}, Limits{}, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
		if err != nil {
			t.Fatal(err)
		}
		way := &breaksFirst{}
		u.servers[0].transports.Store(&transports{plain: [2]http.RoundTripper{way, way}})
		req, err := http.NewRequestWithContext(t.Context(), method, "/api/v1/pods", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if method == http.MethodPost {
			req.Body = io.NopCloser(strings.NewReader("a pod"))
		}
		res, err := u.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		res.Body.Close()
		if way.tries != 2 || method == http.MethodPost && way.body != "a pod" {
			t.Errorf("%s: %d tries, and %q arrived", method, way.tries, way.body)
		}
	}
}
