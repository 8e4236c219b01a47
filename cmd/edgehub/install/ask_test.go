package install

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/hub/nodeca"
)

// A sidecar takes a connection and closes it, or has a certificate of its own: neither is the hub, which answers even
// somebody without a token.
func TestAnAnswerIsTheHubs(t *testing.T) {
	serve := func(file string) (address string) {
		ca, err := nodeca.Open(file, nodeca.NamesOf("edge1", []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil))
		if err != nil {
			t.Fatal(err)
		}
		certificates, err := ca.Issue()
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
		server.TLS = &tls.Config{Certificates: []tls.Certificate{*certificates.Usual}, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	file := filepath.Join(t.TempDir(), "pods-ca.pem")
	hub, another := serve(file), serve(filepath.Join(t.TempDir(), "pods-ca.pem"))
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closing.Close()
	go func() {
		for {
			conn, err := closing.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	roots, err := podRoots(file)
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{hub: true, another: false, closing.Addr().String(): false} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := askHub(ctx, conn, roots); (err == nil) != want {
			t.Errorf("%s: %v, want an answer of the hub's: %v", address, err, want)
		}
		cancel()
		conn.Close()
	}
}
