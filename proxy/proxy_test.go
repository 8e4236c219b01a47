package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// raw sends request bytes as they are and reads one answer.
func raw(t *testing.T, hub *hubUnderTest, text string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", hub.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestRequestArrivesAsItWasSent(t *testing.T) {
	type arrived struct {
		Method, URI, Host, Body string
		Header                  http.Header
	}
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		json.NewEncoder(w).Encode(arrived{r.Method, r.RequestURI, r.Host, string(body), r.Header})
	})
	tests := map[string]struct {
		request string
		want    arrived
	}{
		"no header is invented": {
			"GET /api/v1/pods HTTP/1.1\r\nHost: hub\r\n\r\n",
			arrived{Method: "GET", URI: "/api/v1/pods", Header: http.Header{}},
		},
		"forwarding headers, repeated headers and credentials stay": {
			"GET /api HTTP/1.1\r\nHost: hub\r\nX-Forwarded-For: 10.1.2.3\r\nForwarded: for=10.1.2.3\r\nX-Stream: a\r\nX-Stream: b\r\nAuthorization: Basic eDp5\r\nAccept-Encoding: gzip\r\nUser-Agent: kubelet/v1\r\n\r\n",
			arrived{Method: "GET", URI: "/api", Header: http.Header{
				"X-Forwarded-For": {"10.1.2.3"}, "Forwarded": {"for=10.1.2.3"}, "X-Stream": {"a", "b"},
				"Authorization": {"Basic eDp5"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"kubelet/v1"},
			}},
		},
		"hop-by-hop headers go, also those that Connection names": {
			"GET /api HTTP/1.1\r\nHost: hub\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nProxy-Authorization: secret\r\n\r\n",
			arrived{Method: "GET", URI: "/api", Header: http.Header{}},
		},
		"a method of its own and a body": {
			"FROB /x HTTP/1.1\r\nHost: hub\r\nContent-Type: application/apply-patch+yaml\r\nContent-Length: 5\r\n\r\nhello",
			arrived{Method: "FROB", URI: "/x", Body: "hello", Header: http.Header{
				"Content-Type": {"application/apply-patch+yaml"}, "Content-Length": {"5"}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got arrived
			if err := json.NewDecoder(raw(t, hub, tt.request).Body).Decode(&got); err != nil {
				t.Fatal(err)
			}
			if got.Host != hub.cloud {
				t.Errorf("Host %q, want the apiserver's own %q", got.Host, hub.cloud)
			}
			got.Host = ""
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("arrived %+v\n   want %+v", got, tt.want)
			}
		})
	}
}

func TestAnswerArrivesAsItWasSent(t *testing.T) {
	const text = "<html>looks like HTML" // and not like gzip: nobody may look at it
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		w.Header()["Content-Type"] = nil
		w.Header().Add("Warning", `299 - "one"`)
		w.Header().Add("Warning", `299 - "two"`)
		w.Header().Set("Trailer", "X-Sum")
		if encoding := r.Header.Get("Accept-Encoding"); encoding != "" {
			w.Header().Set("Content-Encoding", encoding)
		}
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, text)
		http.NewResponseController(w).Flush() // or the length would be known
		w.Header().Set("X-Sum", "abc")
	})
	for accept, want := range map[string]http.Header{
		"":                          {"Warning": {`299 - "one"`, `299 - "two"`}},
		"Accept-Encoding: gzip\r\n": {"Warning": {`299 - "one"`, `299 - "two"`}, "Content-Encoding": {"gzip"}},
	} {
		res := raw(t, hub, "GET /x HTTP/1.1\r\nHost: hub\r\n"+accept+"\r\n")
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != http.StatusTeapot || string(body) != text || !reflect.DeepEqual(res.Header, want) {
			t.Errorf("got %d %q %v, want 418, the same body and only %v", res.StatusCode, body, res.Header, want)
		}
		if got := res.Trailer.Get("X-Sum"); got != "abc" {
			t.Errorf("trailer X-Sum %q, want abc", got)
		}
	}
}

func TestWatchIsFlushedFrameByFrame(t *testing.T) {
	next := make(chan string)
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		for frame := range next {
			io.WriteString(w, frame)
			http.NewResponseController(w).Flush()
		}
	})
	res, err := hub.Client().Get(hub.URL + "/api/v1/pods?watch=true") // the header comes before the first frame
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for i := range 3 { // each is read before the next is written
		frame := fmt.Sprintf("frame %d\n", i)
		next <- frame
		if got, err := lines.ReadString('\n'); got != frame || err != nil {
			t.Fatalf("got %q, %v; want %q", got, err, frame)
		}
	}
	close(next)
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("after the end: %q, %v", rest, err)
	}
}

func TestClientThatLeavesCancelsItsRequestUpstream(t *testing.T) {
	arrived, gone := make(chan struct{}), make(chan struct{})
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	ctx, leave := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, hub.URL+"/api/v1/pods?watch=1", nil)
	res, err := hub.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	<-arrived
	leave()
	res.Body.Close()
	<-gone
}

func TestBodyThatBreaksOffUpstreamBreaksOffAtTheClient(t *testing.T) {
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("item ", 1000))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for range 20 { // and leaks nothing: TestMain
		res, err := hub.Client().Get(hub.URL + "/api/v1/pods")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil {
			t.Fatalf("a list cut after %d bytes ended as if it were whole", len(body))
		}
	}
}

func TestAnUpgradedConnectionCarriesBytesBothWaysAndIsWaitedFor(t *testing.T) {
	hub := newHub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Header.Get("Upgrade") != "SPDY/3.1" {
			http.Error(w, "upgrade wants HTTP/1.1", http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n")
		rw.Flush()
		line, _ := textproto.NewReader(rw.Reader).ReadLine()
		io.WriteString(rw, "echo "+line+"\n")
		rw.Flush()
	})
	if err := hub.proxy.Wait(t.Context()); err != nil {
		t.Fatalf("with nothing to wait for: %v", err)
	}
	conn, err := net.Dial("tcp", hub.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /api/v1/namespaces/n/pods/p/exec?command=sh HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	reader := bufio.NewReader(conn)
	res, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" {
		t.Fatalf("got %d %v", res.StatusCode, res.Header)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := hub.proxy.Wait(short); err == nil {
		t.Error("an exec session is not waited for")
	}
	io.WriteString(conn, "hello\n")
	if line, err := reader.ReadString('\n'); line != "echo hello\n" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
	conn.Close()
	if err := hub.proxy.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStrangerIs401WithStatus(t *testing.T) {
	hub := newHub(t, nil)
	hub.Config.Handler = hub.proxy.Handler(func(*http.Request) (authn.Identity, error) {
		return authn.Caller, fmt.Errorf("%w: who?", authn.ErrUnauthenticated)
	})
	status := wantStatus(t, hub.do(t, http.MethodGet, "/api", "", nil))
	if status.Code != http.StatusUnauthorized || status.Reason != metav1.StatusReasonUnauthorized || !strings.Contains(status.Message, "who?") {
		t.Errorf("got %+v", status)
	}
}

// A large body is passed on while it comes; a small one is read first.
func TestABodyThatBreaksOffIsNotTheApiserversFault(t *testing.T) {
	ended := make(chan error, 1)
	hub := newHub(t, func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		if r.ContentLength <= limits.MaxReplay {
			t.Error("half of a small request was sent on")
			return
		}
		ended <- err
	})
	for _, length := range []int{100, limits.MaxReplay + 1} {
		conn, err := net.Dial("tcp", hub.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "PUT /x HTTP/1.1\r\nHost: hub\r\nContent-Length: %d\r\n\r\nhalf", length)
		conn.(*net.TCPConn).CloseWrite()
		if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			t.Errorf("half a request was answered %d", res.StatusCode)
		}
	}
	if err := <-ended; err == nil {
		t.Error("an upload that broke off arrived as if it were whole")
	}
	if err := hub.upstream.State().Servers[0].Err; err != nil {
		t.Errorf("the apiserver counts as down: %v", err)
	}
}

// roundTripper is what stands between Proxy and Upstream.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newFront(t *testing.T, upstream roundTripper) (*Proxy, *httptest.Server) {
	t.Helper()
	p := newProxy(upstream)
	front := httptest.NewServer(p.Handler(authn.Loopback))
	t.Cleanup(front.Close)
	return p, front
}

func TestWhoStandsInBetweenLearnsWhoAsksForWhat(t *testing.T) {
	_, front := newFront(t, func(r *http.Request) (*http.Response, error) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Verb != "watch" || info.Resource != "pods" || info.Namespace != "n" {
			t.Errorf("request info %+v", info)
		}
		if id := authn.IdentityOf(r.Context()); id != authn.Node {
			t.Errorf("identity %v", id)
		}
		return nil, &upstream.UnreachableError{}
	})
	res, err := http.Get(front.URL + "/api/v1/namespaces/n/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

func TestUnreachableSaysWhatItMeansForTheRequest(t *testing.T) {
	down := &upstream.UnreachableError{Attempts: []error{errors.New("a:6443: connection refused")}}
	tests := map[string]struct {
		err  error
		want string
	}{
		"from upstream":               {down, "edgehub: the cloud cannot be reached: a:6443: connection refused"},
		"wrapped on the way":          {fmt.Errorf("this was never read through this hub: %w", down), "edgehub: the cloud cannot be reached, and this was never read through this hub: a:6443: connection refused"},
		"wrapped in a whole sentence": {fmt.Errorf("the cloud cannot be reached and the spool is full: %w", down), "edgehub: the cloud cannot be reached and the spool is full: a:6443: connection refused"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, front := newFront(t, func(*http.Request) (*http.Response, error) { return nil, tt.err })
			res, err := http.Get(front.URL + "/api/v1/pods")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			status := wantStatus(t, res)
			if status.Code != http.StatusServiceUnavailable || status.Reason != metav1.StatusReasonServiceUnavailable || status.Message != tt.want || res.Header.Get("Retry-After") != "1" {
				t.Errorf("got %+v %v, want 503 %q, and to come again after a second", status, res.Header, tt.want)
			}
		})
	}
}

// client-go comes again ten times in ten seconds if it is asked to: an informer is back soon after the cloud, and kubelet, which
// reads what one pod after the other mounts, is held up.
func TestWhoComesAgainInAnOutage(t *testing.T) {
	lost := &upstream.UnreachableError{}
	_, front := newFront(t, func(*http.Request) (*http.Response, error) { return nil, lost })
	const object = "/api/v1/namespaces/n/persistentvolumeclaims/c"
	for _, tt := range []struct {
		method, path string
		comesAgain   bool // long after the loss
	}{
		{http.MethodGet, "/api/v1/namespaces/n/persistentvolumeclaims?limit=500", true},
		{http.MethodGet, "/api/v1/namespaces/n/persistentvolumeclaims?watch=1", true},
		{http.MethodGet, "/api/v1/namespaces/n/persistentvolumeclaims?fieldSelector=metadata.name%3Dc&watch=1", true},
		{http.MethodGet, object, false},
		{http.MethodGet, object + "/status", false},
		{http.MethodGet, "/apis", false},
		{http.MethodPut, object, false},
		{http.MethodPost, "/api/v1/namespaces/n/pods", false},
		{http.MethodPatch, object, false},
		{http.MethodDelete, object, false},
	} {
		for _, since := range []time.Duration{0, time.Second, time.Hour} {
			if lost.Since = (time.Time{}); since > 0 {
				lost.Since = time.Now().Add(-since)
			}
			r, err := http.NewRequestWithContext(t.Context(), tt.method, front.URL+tt.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := front.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			status := wantStatus(t, res)
			res.Body.Close()
			again := res.Header.Get("Retry-After") != ""
			if want := tt.comesAgain || since < lossGrace; again != want || (status.Details != nil) != want || status.Code != http.StatusServiceUnavailable {
				t.Errorf("%s %s, %v after the loss: Retry-After %q, %+v", tt.method, tt.path, since, res.Header.Get("Retry-After"), status)
			}
		}
	}
}

// untilDone is the body of a watch that ends with its request, and not cleanly.
type untilDone struct{ ctx context.Context }

func (b untilDone) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, context.Cause(b.ctx) }
func (untilDone) Close() error               { return nil }

func TestDrainEndsAWatchThatOutlivesItsUpstream(t *testing.T) {
	p, front := newFront(t, func(r *http.Request) (*http.Response, error) {
		return answerOf(r, untilDone{r.Context()}), r.Context().Err()
	})
	res, err := http.Get(front.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	p.Drain()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("the watch ended with %q, %v; want a clean end", rest, err)
	}
	late, err := http.Get(front.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Body.Close()
	if status := wantStatus(t, late); status.Code != http.StatusServiceUnavailable {
		t.Errorf("a watch opened while the hub stops: %+v, want 503", status)
	}
}
