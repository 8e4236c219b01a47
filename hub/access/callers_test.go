package access

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/edgehub-io/edgehub/hub/config"
	"github.com/edgehub-io/edgehub/hub/peer"
)

// lookingCallers returns Callers that check connections, with these users as the node's.
func lookingCallers(t testing.TB, users ...uint32) *Callers {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("NOT RUN: only Linux tells who is at the other end")
	}
	c, err := NewCallers(&config.Config{Options: config.Options{CallerCheck: config.CheckOff}, ProxyAddress: "127.0.0.1:0"}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if c.peers, err = peer.New(users); err != nil { // for our own connections it takes no rights
		t.Fatal(err)
	}
	return c
}

// requestOn returns a request that arrived on conn.
func requestOn(t testing.TB, c *Callers, conn net.Conn) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(c.ConnContext(t.Context(), conn), http.MethodGet, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func connectedPair(t testing.TB) (server, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return server, client
}

func TestAConnectionIsCheckedOnce(t *testing.T) {
	me := uint32(os.Geteuid())
	for name, tt := range map[string]struct {
		user    uint32
		refused bool
	}{
		"the node's": {me, false},
		"another's":  {me + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := lookingCallers(t, tt.user)
			server, client := connectedPair(t)
			r := requestOn(t, c, server)
			if err := c.Refuse(r); (err != nil) != tt.refused {
				t.Fatalf("refused: %v", err)
			}
			client.Close() // nothing could be found out any more
			if err := c.Refuse(r); (err != nil) != tt.refused || err != nil && !strings.Contains(err.Error(), "user ID") {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

func TestAnUnknownPeerIsCheckedAgain(t *testing.T) {
	c := lookingCallers(t, uint32(os.Geteuid()))
	server, client := connectedPair(t)
	client.Close()
	r := requestOn(t, c, server)
	var refusal *peer.Refusal
	if err := c.Refuse(r); !errors.As(err, &refusal) || refusal.Reason != peer.Unknown {
		t.Fatalf("got %v", err)
	}
	if r.Context().Value(connKey{}).(*clientConn).known {
		t.Error("it would be refused for as long as the connection is kept")
	}
}

func TestARequestWithoutAConnectionIsRefused(t *testing.T) {
	c := lookingCallers(t, uint32(os.Geteuid()))
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if c.Refuse(r) == nil {
		t.Error("it got the node's identity")
	}
}

// BenchmarkKnownConnection measures the check of all requests on a connection but the first.
func BenchmarkKnownConnection(b *testing.B) {
	c := lookingCallers(b, uint32(os.Geteuid()))
	server, _ := connectedPair(b)
	r := requestOn(b, c, server)
	for b.Loop() {
		if err := c.Refuse(r); err != nil {
			b.Fatal(err)
		}
	}
}

func TestACallerFromManyLoopbackAddressesIsLoggedOnce(t *testing.T) {
	limit := newLogLimit()
	lines := 0
	for i := range 200 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), 1)
		if limit.allow(subject(&peer.Refusal{Reason: peer.Unknown, Remote: from}), time.Now()) {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines", lines)
	}
}
