package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgehub-io/edgehub/hub/access"
	"github.com/edgehub-io/edgehub/hub/config"
)

// Headers of up to 16 KiB are served, and no larger ones but those of exec. On a connection that has carried a request, net/http lets
// 4 KiB more pass.
func TestAHeaderIsBounded(t *testing.T) {
	const limit, smallest, slop, reused = 16 << 10, 1 << 10, 1 << 10, 4 << 10
	n := newNode(t, echoToken)
	n.start(t)
	for _, url := range []string{"http://" + n.config.ProxyAddress + "/version", "http://" + n.config.ServeAddress + "/v1/healthz"} {
		for _, tt := range []struct {
			sizes []int // of the headers on one connection
			code  int   // of the answer to the last
		}{
			{[]int{limit - 2*slop}, http.StatusOK},
			{[]int{limit + slop}, http.StatusRequestHeaderFieldsTooLarge},
			{[]int{smallest, limit - 2*slop}, http.StatusOK},
			{[]int{smallest, limit + slop + reused}, http.StatusRequestHeaderFieldsTooLarge},
		} {
			transport := &http.Transport{MaxConnsPerHost: 1}
			code := 0
			for _, size := range tt.sizes {
				code, _ = sendTo(t, &http.Client{Transport: transport}, http.MethodGet, url, "", "X-Large", strings.Repeat("x", size))
			}
			transport.CloseIdleConnections()
			if code != tt.code {
				t.Errorf("%s with headers of %d bytes: %d, want %d", url, tt.sizes, code, tt.code)
			}
		}
	}
}

// kubectl puts the command of exec into the URL. By HTTP/1.1, which an upgrade takes, that may be larger than other headers.
func TestTheCommandOfExecMayBeLarge(t *testing.T) {
	n := newNode(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%d", r.Header.Get("Upgrade"), len(r.URL.Query().Get("command")))
	})
	n.start(t)
	const exec, upgrade = "/api/v1/namespaces/n/pods/p/exec", "websocket"
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the server is the test's
	defer transport.CloseIdleConnections()
	for _, hub := range []string{"http://" + n.config.ProxyAddress, "https://" + n.config.SecureAddress} {
		for _, tt := range []struct {
			path, upgrade string
			command       int
			other         int // bytes of another header
			code          int
		}{
			{exec, upgrade, 20_000, 0, http.StatusSwitchingProtocols},
			{exec, "SPDY/3.1", 200 << 10, 0, http.StatusSwitchingProtocols},
			{exec, upgrade, 300 << 10, 0, http.StatusRequestHeaderFieldsTooLarge},
			{exec, upgrade, 20_000, 17 << 10, http.StatusRequestHeaderFieldsTooLarge},
			{exec, "", 20_000, 0, http.StatusRequestHeaderFieldsTooLarge},
			{"/api/v1/pods", upgrade, 20_000, 0, http.StatusRequestHeaderFieldsTooLarge}, // a watch
		} {
			url := hub + tt.path + "?command=" + strings.Repeat("x", tt.command)
			headers := []string{"Authorization", "Bearer mine", "X-Large", strings.Repeat("x", tt.other)}
			if tt.upgrade != "" {
				headers = append(headers, "Connection", "Upgrade", "Upgrade", tt.upgrade)
			}
			code, body := sendTo(t, &http.Client{Transport: transport}, http.MethodPost, url, "", headers...)
			if code != tt.code || code == http.StatusSwitchingProtocols && body != fmt.Sprint(tt.command) {
				t.Errorf("%s%s by %q, with a command of %d bytes and %d beside it: %d %.200q, want %d", hub, tt.path, tt.upgrade, tt.command, tt.other, code, body, tt.code)
			}
		}
	}
}

// TestAnUnfinishedHeaderEndsItsConnection is with the time of a synctest bubble.
func TestAnUnfinishedHeaderEndsItsConnection(t *testing.T) {
	unfinished1 := func(c *tls.Conn) error {
		_, err := io.WriteString(c, "GET /version HTTP/1.1\r\nHost: hub\r\nX-Large: ")
		return err
	}
	unfinished2 := func(before int) func(c *tls.Conn) error {
		return func(conn *tls.Conn) error {
			c, err := newHTTP2Client(conn)
			for range before {
				if err == nil {
					_, err = c.open("/watch")
				}
			}
			c.headers.Reset()
			_ = c.encoder.WriteField(hpack.HeaderField{Name: ":method", Value: "GET"}) // to a buffer
			return errors.Join(err, c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.next, BlockFragment: c.headers.Bytes()}))
		}
	}
	for name, tt := range map[string]struct {
		protocol string
		send     func(*tls.Conn) error
	}{
		"HTTP/1.1":               {"http/1.1", unfinished1},
		"HTTP/2":                 {"h2", unfinished2(0)},
		"HTTP/2, beside a watch": {"h2", unfinished2(1)},
		"a handshake":            {"", func(c *tls.Conn) error { _, err := c.NetConn().Write([]byte{22, 3, 1, 2, 0}); return err }},
		"the preface of HTTP/2":  {"h2", func(c *tls.Conn) error { _, err := io.WriteString(c, "PRI * "); return err }},
		"a frame of HTTP/2": {"h2", func(c *tls.Conn) error {
			h, err := newHTTP2Client(c)
			_, more := h.conn.Write([]byte{0, 16, 0, 1})
			return errors.Join(err, more)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := serveInBubble(t, tt.protocol)
				began := time.Now()
				if err := tt.send(conn); err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, conn.NetConn()) // until the hub closes it
				if took := time.Since(began); took > headerTimeout {
					t.Errorf("its connection was closed after %v", took)
				}
			})
		})
	}
}

// A client that answers pings, as all do, keeps its connection, however quiet its watch is.
func TestAQuietWatchIsNotCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := serveInBubble(t, "h2")
		transport := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://hub/watch", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if event, err := io.ReadAll(res.Body); string(event) != "event" || err != nil || res.ProtoMajor != 2 {
			t.Errorf("after an hour: %q %v (%s)", event, err, res.Proto)
		}
	})
}

// serveInBubble serves /watch, which has an event after an hour, and returns a connection.
func serveInBubble(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	n := &config.Config{Options: config.Options{RootDir: t.TempDir(), NodeName: "n1", CallerCheck: config.CheckOff}, PodAddresses: []netip.Addr{netip.MustParseAddr("169.254.2.1")}}
	pods, err := openPodAccess(n, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	callers, err := access.NewCallers(n, prometheus.NewRegistry(), log)
	if err != nil {
		t.Fatal(err)
	}
	h := &ports{log: log, callers: callers, requests: t.Context()}
	local := newInproc()
	h.serve("test", local, &http.Server{TLSConfig: pods.serverConfig(), MaxHeaderBytes: largeHeader, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(time.Hour):
			io.WriteString(w, "event")
		}
	})})
	done := make(chan error, 1)
	go func() { done <- h.all[0].run() }()
	conn, err := local.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		h.all[0].server.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}) //nolint:gosec // the server is the test's
	if protocol == "" {
		return client
	}
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	return client
}
