// Package proxytest has what the tests of the proxy's packages share: apiservers, a CA for
// client certificates, and a server in front of a hub.
package proxytest

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIServer is an HTTPS server that, like an apiserver, speaks HTTP/2 and HTTP/1.1 and
// requests client certificates.
func APIServer(t testing.TB, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Config.ConnContext = WithConn
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

type connKey struct{}

// WithConn is an http.Server's ConnContext, for ConnOf.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnOf returns the connection on which the server received a request.
func ConnOf(r *http.Request) net.Conn { return r.Context().Value(connKey{}).(net.Conn) }

// Endless sends bytes until the client stops reading; sent counts them.
func Endless(sent *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		chunk := make([]byte, 32<<10)
		for {
			n, err := w.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}
}

// Serve serves handler while run runs, until the test ends; closing is called last.
func Serve(t testing.TB, handler http.Handler, run func(context.Context) error, closing func()) *httptest.Server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	front := httptest.NewServer(handler)
	front.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(func() {
		front.Close()
		cancel()
		<-ended //nolint:errcheck // Upstream.Run returns nil
		closing()
	})
	return front
}

// URLs parses the addresses of apiservers.
func URLs(t testing.TB, servers ...string) []*url.URL {
	t.Helper()
	var addresses []*url.URL
	for _, s := range servers {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		addresses = append(addresses, u)
	}
	return addresses
}

// RefusedURL is an address where nothing listens.
func RefusedURL(t *testing.T) string {
	t.Helper()
	return "https://127.0.0.1:" + strconv.Itoa(FreePort(t))
}

// FreePort returns a port of 127.0.0.1 where the caller may listen, also more than once, and that
// nobody else gets until the test ends. A socket is bound to the port and does not listen: Linux gives
// the port to no connection and no listener that asks for any. SO_REUSEADDR, which net.Listen sets,
// too, lets listen who names it.
//
// Suites in the module of tests have test/internal/freeport, which does the same.
func FreePort(t testing.TB) int {
	t.Helper()
	syscall.ForkLock.RLock()
	s, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(s)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(s) })
	if err := syscall.Bind(s, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.SetsockoptInt(s, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(s)
	if err != nil {
		t.Fatal(err)
	}
	return bound.(*syscall.SockaddrInet4).Port
}

// Until waits until another goroutine has made holds true.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

// GetStatus requests path and expects a metav1.Status.
func GetStatus(t *testing.T, s *httptest.Server, path string) (int, *metav1.Status) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	status := &metav1.Status{}
	if err := json.NewDecoder(res.Body).Decode(status); err != nil {
		t.Fatalf("%d, and the body is not a Status: %v", res.StatusCode, err)
	}
	if status.Kind != "Status" || status.APIVersion != "v1" || int(status.Code) != res.StatusCode {
		t.Errorf("incomplete Status: %+v", status)
	}
	return res.StatusCode, status
}
