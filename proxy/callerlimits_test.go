package proxy

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
)

// postPart sends a part of a body with a token, whoever's, and leaves it at that.
func postPart(t *testing.T, h *hubUnderTest) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	send(t, c, "%sAuthorization: Bearer a\r\nContent-Length: %d\r\n\r\n{", postHead, limits.MaxReplay)
	return c
}

func TestStrangersWhoSendHalfABodyDoNotAddUp(t *testing.T) {
	h := newHub(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h.proxy.bodies = limits.NewEviction(3, 0)
	first := postPart(t, h)
	for range 20 {
		postPart(t, h)
		res := h.do(t, http.MethodPost, "/api/v1/pods", "{}", bearer("b"))
		body, err := io.ReadAll(res.Body)
		if err != nil || string(body) != "{}" {
			t.Fatalf("a whole body: %s, %q (%v)", res.Status, body, err)
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(2 * time.Minute))
	answer, _ := io.ReadAll(first) // until the hub closes it
	if !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("the longest half body was answered %.100q", answer)
	}
	if n := h.proxy.bodies.Len(); n > 3 {
		t.Errorf("%d are waited for", n)
	}
}

func TestTheNodeIsWaitedForHoweverManyOthersThereAre(t *testing.T) {
	h := newHub(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h.proxy.bodies = limits.NewEviction(1, 0)
	c, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	send(t, c, "%sContent-Length: 2\r\nConnection: close\r\n\r\n{", postHead)
	for range 5 {
		postPart(t, h)
	}
	send(t, c, "}")
	answer, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Errorf("answered %.100q", answer)
	}
}

func TestClientsThatDoNotReadAreCutWhereThereAreMany(t *testing.T) {
	cut := make(chan string, 4) // by the token of a client
	var sent atomic.Int64
	h := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		for chunk := make([]byte, 32<<10); ; {
			n, err := w.Write(chunk)
			if err != nil {
				cut <- r.Header.Get("Authorization")
				return
			}
			sent.Add(int64(n))
		}
	})
	h.proxy.writes = limits.NewEviction(2, 50*time.Millisecond)
	for i := range 4 {
		c, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send(t, c, "GET /openapi/v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %d\r\n\r\n", i)
		if i >= 2 {
			if got, want := <-cut, fmt.Sprint("Bearer ", i-2); got != want { // the one that has waited the longest
				t.Errorf("with %d clients, that with the token %q is cut, want %q", i+1, got, want)
			}
		}
		// All buffers are full: who has waited longer is the one that came before.
		for deadline, before := time.Now().Add(2*time.Minute), int64(-1); h.proxy.writes.Len() != min(i+1, 2) || sent.Load() != before; time.Sleep(100 * time.Millisecond) {
			if before = sent.Load(); time.Now().After(deadline) {
				t.Fatalf("not within 2 minutes: %d clients in, and %d wait", i+1, h.proxy.writes.Len())
			}
		}
	}
	if len(cut) > 0 {
		t.Errorf("another is cut: %s", <-cut)
	}
}

func TestThereAreOnlySoManyRequestsOfOthers(t *testing.T) {
	var identified sync.Map // by token, since it was first answered
	var writes atomic.Int64
	h := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		identified.Store(r.Header.Get("Authorization"), true)
		if r.Method != http.MethodGet {
			writes.Add(1)
		}
		w.(http.Flusher).Flush()
		if r.URL.Query().Has("watch") {
			<-r.Context().Done()
		}
	})
	h.proxy.callers = limits.NewShares(27)
	h.proxy.tenant = func(r *http.Request) (tenant, user string) {
		token := r.Header.Get("Authorization")
		if _, ok := identified.Load(token); !ok {
			return "", "a pod"
		}
		tenant, user, _ = strings.Cut(token, "/")
		return tenant, user
	}
	watches := func(token func(i int) string) (open int) {
		t.Helper()
		for i := range 30 {
			switch res := h.do(t, http.MethodGet, "/api/v1/pods?watch=1", "", bearer(token(i))); {
			case res.StatusCode == http.StatusOK:
				open++
			case res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1":
				t.Errorf("one more: %s %v", res.Status, res.Header)
			}
		}
		return open
	}
	if n := watches(func(int) string { return "flood/one" }); n != 9 {
		t.Errorf("one user has %d watches of 27", n)
	}
	// Its new tokens, which nobody knows when they are used, give it no more.
	if n := watches(func(i int) string { return fmt.Sprintf("flood/one/%d", i) }); n > 5 {
		t.Errorf("as other users of its tenant it has %d watches of 18 more", n)
	}
	if res := h.do(t, http.MethodPost, "/api/v1/pods", "", bearer("flood/one/write")); res.StatusCode != http.StatusOK || writes.Load() != 1 {
		t.Errorf("a write of which the hub learned only then that it exceeds a share, and that was carried out: %s", res.Status)
	}
	for range 3 {
		if res := h.do(t, http.MethodGet, "/api/v1/pods?watch=1", "", bearer("other/user")); res.StatusCode != http.StatusOK {
			t.Errorf("another tenant: %s", res.Status)
		}
		if res := h.do(t, http.MethodGet, "/api/v1/pods?watch=1", "", nil); res.StatusCode != http.StatusOK {
			t.Errorf("the node: %s", res.Status)
		}
	}
}

func TestRefusalsThatNobodyReadsDoNotAddUp(t *testing.T) {
	h := newHub(t, nil)
	h.proxy.refusals = limits.NewEviction(2, 0)
	refuse := func(*http.Request) (authn.Identity, error) { return authn.Caller, authn.ErrUnauthenticated }
	front := httptest.NewUnstartedServer(h.proxy.Handler(refuse))
	front.EnableHTTP2 = true
	front.StartTLS()
	t.Cleanup(front.Close)
	conn, err := tls.Dial("tcp", front.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}) //nolint:gosec // the server is the test's
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	c := http2.NewFramer(conn, conn)
	if err := c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	const requests = 10
	for i := range requests {
		var header bytes.Buffer
		encoder := hpack.NewEncoder(&header)
		for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "hub"}, {Name: ":path", Value: "/api"}} {
			f.Sensitive = true // and so in no table, which each request would share
			_ = encoder.WriteField(f)
		}
		if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: header.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
	}
	for cut := 0; cut < requests-2; {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("%d of %d that nobody reads were cut: %v", cut, requests, err)
		}
		if _, ok := frame.(*http2.RSTStreamFrame); ok {
			cut++
		}
	}
	if n := h.proxy.refusals.Len(); n > 2 {
		t.Errorf("%d wait", n)
	}
}
