package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/proxy/proxytest"
)

func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewEviction(2, time.Second)
		var cut []string
		join := func(name string) (leave func()) { return c.Add(func() { cut = append(cut, name) }) }
		want := func(when, names string) {
			t.Helper()
			if got := strings.Join(cut, " "); got != names {
				t.Errorf("%s: cut %q, want %q", when, got, names)
			}
		}
		join("a")
		join("b")
		time.Sleep(time.Hour)
		want("as many as may wait, for an hour", "")
		leave := join("c")
		want("one more", "a")
		leave()
		leave()
		join("d")
		want("one has left, and another came", "a")
		join("e")
		join("f")
		want("those who have waited less than the patience", "a b")
		time.Sleep(time.Second)
		synctest.Wait()
		want("the patience is over", "a b d")
		join("g")
		want("one more, of whom the longest has lost patience", "a b d e")
	})
}

// postPart sends a part of a body with a token, whoever's, and leaves it at that.
func postPart(t *testing.T, h *hubUnderTest) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", h.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	send(t, c, "%sAuthorization: Bearer a\r\nContent-Length: %d\r\n\r\n{", postHead, MaxReplay)
	return c
}

func TestStrangersWhoSendHalfABodyDoNotAddUp(t *testing.T) {
	cloud := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h := newHub(t, Credentials{}, cloud.URL)
	h.proxy.bodies = NewEviction(3, 0)
	first := postPart(t, h)
	for range 20 {
		postPart(t, h)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.URL+"/api/v1/pods", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer b")
		res, err := h.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(body) != "{}" {
			t.Fatalf("a whole body: %s, %q (%v)", res.Status, body, err)
		}
	}
	_ = first.SetReadDeadline(time.Now().Add(2 * time.Minute))
	answer, _ := io.ReadAll(first) // until the hub closes it
	if !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("the longest half body was answered %.100q", answer)
	}
	h.proxy.bodies.mu.Lock()
	defer h.proxy.bodies.mu.Unlock()
	if n := h.proxy.bodies.waiting.Len(); n > 3 {
		t.Errorf("%d are waited for", n)
	}
}

func TestTheNodeIsWaitedForHoweverManyOthersThereAre(t *testing.T) {
	cloud := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	h := newHub(t, Credentials{}, cloud.URL)
	h.proxy.bodies = NewEviction(1, 0)
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

// endless answers with bytes until nobody takes them; sent counts them.
func endless(sent *atomic.Int64) http.HandlerFunc {
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

func TestAnAPIServerSendsLittleAheadOfAClientThatDoesNotRead(t *testing.T) {
	var sent atomic.Int64
	cloud := proxytest.APIServer(t, endless(&sent))
	h := newHub(t, Credentials{}, cloud.URL)
	req, err := http.NewRequestWithContext(WithIdentity(t.Context(), Caller), http.MethodGet, "/openapi/v2", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := h.upstream.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	for before := int64(-1); sent.Load() != before; time.Sleep(200 * time.Millisecond) {
		before = sent.Load()
	}
	const aLittleMore = 64 << 10
	if n := sent.Load(); n < streamWindow/2 || n > streamWindow+aLittleMore {
		t.Errorf("%d bytes were sent, want %d", n, streamWindow)
	}
}

func TestClientsThatDoNotReadAreCutWhereThereAreMany(t *testing.T) {
	var sent atomic.Int64
	cloud := proxytest.APIServer(t, endless(&sent))
	h := newHub(t, Credentials{}, cloud.URL)
	h.proxy.writes = NewEviction(2, 50*time.Millisecond)
	var conns []net.Conn
	for i := range 4 {
		c, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
		send(t, c, "GET /openapi/v2 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %d\r\n\r\n", i)
		waiting := func() int {
			h.proxy.writes.mu.Lock()
			defer h.proxy.writes.mu.Unlock()
			return h.proxy.writes.waiting.Len()
		}
		for deadline, before := time.Now().Add(2*time.Minute), int64(-1); waiting() != min(i+1, 2) || sent.Load() != before; {
			if before = sent.Load(); time.Now().After(deadline) {
				t.Fatalf("%d clients in: %d are waited for", i+1, waiting())
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	for i, c := range conns {
		wait := time.Second // in which nothing has to happen
		if i < 2 {
			wait = 2 * time.Minute
		}
		_ = c.SetReadDeadline(time.Now().Add(wait))
		_, err := io.Copy(io.Discard, c)
		if isCut := !errors.Is(err, os.ErrDeadlineExceeded); isCut != (i < 2) {
			t.Errorf("connection %d: cut is %t (%v)", i, isCut, err)
		}
	}
}

// ReverseProxy flushes after a write that failed.
func TestWhoWasCutCountsNoMore(t *testing.T) {
	c := NewEviction(1, 0)
	u := NewResponseWriter(brokenResponse{httptest.NewRecorder()}, c)
	if _, err := u.Write([]byte("a")); err == nil {
		t.Fatal("a write to a broken connection succeeded")
	}
	isCut := false
	defer c.Add(func() { isCut = true })()
	if err := u.FlushError(); err == nil || isCut {
		t.Errorf("flushed what was cut: %v; another was cut for it: %t", err, isCut)
	}
}

// brokenResponse is a response that cannot be written.
type brokenResponse struct{ *httptest.ResponseRecorder }

func (brokenResponse) Write([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestThereAreOnlySoManyRequestsOfOthers(t *testing.T) {
	cloud := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if r.URL.Query().Has("watch") {
			<-r.Context().Done()
		}
	})
	h := newHub(t, Credentials{}, cloud.URL)
	h.proxy.maxCallers = 2
	get := func(path, token string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := h.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	for range 2 {
		if res := get("/api/v1/pods?watch=1", "a"); res.StatusCode != http.StatusOK {
			t.Fatal(res.Status)
		}
	}
	for range 2 {
		res := get("/api", "b")
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
			t.Errorf("one more: %s %v", res.Status, res.Header)
		}
	}
	for range 3 {
		if res := get("/api/v1/pods?watch=1", ""); res.StatusCode != http.StatusOK {
			t.Errorf("the node: %s", res.Status)
		}
	}
}
