package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
	"github.com/edgehub-io/edgehub/proxy/proxytest"
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
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		json.NewEncoder(w).Encode(arrived{r.Method, r.RequestURI, r.Host, string(body), r.Header})
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
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
		"a query that net/url does not like stays": {
			"GET /api/v1/pods?labelSelector=a;b&x=%zz&limit=5 HTTP/1.1\r\nHost: hub\r\n\r\n",
			arrived{Method: "GET", URI: "/api/v1/pods?labelSelector=a;b&x=%zz&limit=5", Header: http.Header{}},
		},
		"an escaped path stays escaped": {
			"GET /api/v1/namespaces/n/services/s:80/proxy/a%2Fb//c/../d HTTP/1.1\r\nHost: hub\r\n\r\n",
			arrived{Method: "GET", URI: "/api/v1/namespaces/n/services/s:80/proxy/a%2Fb//c/../d", Header: http.Header{}},
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
			if host := strings.TrimPrefix(api.URL, "https://"); got.Host != host {
				t.Errorf("Host %q, want the apiserver's own %q", got.Host, host)
			}
			got.Host = ""
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("arrived %+v\n   want %+v", got, tt.want)
			}
		})
	}
}

func TestAnswerArrivesAsItWasSent(t *testing.T) {
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		w.Header()["Content-Type"] = nil
		w.Header().Add("Warning", `299 - "one"`)
		w.Header().Add("Warning", `299 - "two"`)
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "<html>looks like HTML")
		http.NewResponseController(w).Flush() // or the length would be known
		w.Header().Set("X-Sum", "abc")
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
	res := raw(t, hub, "GET /x HTTP/1.1\r\nHost: hub\r\n\r\n")
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{"Warning": {`299 - "one"`, `299 - "two"`}}
	if res.StatusCode != http.StatusTeapot || string(body) != "<html>looks like HTML" || !reflect.DeepEqual(res.Header, want) {
		t.Errorf("got %d %q %v, want 418, the same body and only %v", res.StatusCode, body, res.Header, want)
	}
	if got := res.Trailer.Get("X-Sum"); got != "abc" {
		t.Errorf("trailer X-Sum %q, want abc", got)
	}
}

func TestCompressedBodyStaysCompressed(t *testing.T) {
	packed := []byte{0x1f, 0x8b, 1, 2, 3} // not even valid: nobody may look at it
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(packed)
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
	res := raw(t, hub, "GET /x HTTP/1.1\r\nHost: hub\r\nAccept-Encoding: gzip\r\n\r\n")
	body, _ := io.ReadAll(res.Body)
	if !bytes.Equal(body, packed) || res.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got % x with %v", body, res.Header)
	}
}

func TestWatchIsFlushedFrameByFrame(t *testing.T) {
	next := make(chan string)
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		for frame := range next {
			io.WriteString(w, frame)
			http.NewResponseController(w).Flush()
		}
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
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
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		close(arrived)
		<-r.Context().Done()
		close(gone)
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
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
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, strings.Repeat("item ", 1000))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
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

func TestDrainEndsWatchesCleanly(t *testing.T) {
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "event\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
	res, err := hub.Client().Get(hub.URL + "/api/v1/pods?watch=true")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.ReadFull(res.Body, make([]byte, len("event\n"))); err != nil {
		t.Fatal(err)
	}
	hub.proxy.Drain()
	if rest, err := io.ReadAll(res.Body); err != nil || len(rest) > 0 {
		t.Errorf("the watch ended with %q, %v; want a clean end", rest, err)
	}
	if code, status := proxytest.GetStatus(t, hub.Server, "/api/v1/pods?watch=true"); code != http.StatusServiceUnavailable {
		t.Errorf("a watch opened while the hub stops: %d %s, want 503", code, status.Message)
	}
}

func TestUpgradedConnectionCarriesBytesBothWays(t *testing.T) {
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
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
	hub := newHub(t, upstream.Credentials{}, api.URL)
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
	io.WriteString(conn, "hello\n")
	if line, err := reader.ReadString('\n'); line != "echo hello\n" || err != nil {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestCloudThatCannotBeReachedIs503WithRetryAfter(t *testing.T) {
	hub := newHub(t, upstream.Credentials{}, proxytest.RefusedURL(t))
	res, err := hub.Client().Get(hub.URL + "/api/v1/nodes/n")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Errorf("got %d %v", res.StatusCode, res.Header)
	}
	_, status := proxytest.GetStatus(t, hub.Server, "/api/v1/nodes/n")
	if status.Reason != metav1.StatusReasonServiceUnavailable || !strings.Contains(status.Message, "cloud cannot be reached") ||
		!strings.Contains(status.Message, "connection refused") {
		t.Errorf("status %+v does not say what happened", status)
	}
}

func TestStrangerIs401WithStatus(t *testing.T) {
	hub := newHub(t, upstream.Credentials{}, proxytest.RefusedURL(t))
	deny := func(*http.Request) (authn.Identity, error) {
		return authn.Caller, fmt.Errorf("%w: who?", authn.ErrUnauthenticated)
	}
	hub.Config.Handler = hub.proxy.Handler(deny)
	code, status := proxytest.GetStatus(t, hub.Server, "/api")
	if code != http.StatusUnauthorized || status.Reason != metav1.StatusReasonUnauthorized || !strings.Contains(status.Message, "who?") {
		t.Errorf("got %d %+v", code, status)
	}
}

func TestClientThatBreaksOffItsBodyIsNotTheApiserversFault(t *testing.T) {
	ended := make(chan error, 1)
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			_, err := io.ReadAll(r.Body)
			ended <- err
		}
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
	conn, err := net.Dial("tcp", hub.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "PUT /x HTTP/1.1\r\nHost: hub\r\nContent-Length: %d\r\n\r\nhalf", limits.MaxReplay+1)
	conn.(*net.TCPConn).CloseWrite()
	if err := <-ended; err == nil {
		t.Error("an upload that broke off arrived as if it were whole")
	}
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		t.Errorf("half a request was answered %d", res.StatusCode)
	}
	if err := hub.upstream.State().Servers[0].Err; err != nil {
		t.Errorf("the apiserver counts as down: %v", err)
	}
}

func TestRequestForNoPathIs400(t *testing.T) {
	api := proxytest.APIServer(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent on") })
	hub := newHub(t, upstream.Credentials{}, api.URL)
	if res := raw(t, hub, "GET a:b HTTP/1.1\r\nHost: hub\r\n\r\n"); res.StatusCode != http.StatusBadRequest {
		t.Errorf("answered %d", res.StatusCode)
	}
}

func TestWaitCountsUpgradedConnections(t *testing.T) {
	release := make(chan struct{})
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		rw.Flush()
		<-release
	})
	hub := newHub(t, upstream.Credentials{}, api.URL)
	if err := hub.proxy.Wait(t.Context()); err != nil {
		t.Fatalf("with nothing to wait for: %v", err)
	}
	conn, err := net.Dial("tcp", hub.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /exec HTTP/1.1\r\nHost: hub\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %v, %v", res, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := hub.proxy.Wait(short); err == nil {
		t.Error("an exec session is not waited for")
	}
	close(release)
	conn.Close()
	if err := hub.proxy.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSmallBodyThatBreaksOffIsNeverSent(t *testing.T) {
	api := proxytest.APIServer(t, func(w http.ResponseWriter, r *http.Request) { t.Error("half a request was sent on") })
	hub := newHub(t, upstream.Credentials{}, api.URL)
	conn, err := net.Dial("tcp", hub.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "PUT /x HTTP/1.1\r\nHost: hub\r\nContent-Length: 100\r\n\r\nhalf")
	conn.(*net.TCPConn).CloseWrite()
	if res, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
		t.Errorf("half a request was answered %d", res.StatusCode)
	}
}

// roundTripper is what stands between Proxy and Upstream.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newFront(t *testing.T, upstream roundTripper) (*Proxy, *httptest.Server) {
	t.Helper()
	p := New(upstream, nobody, func(context.Context) {}, slog.New(slog.DiscardHandler), NewMetrics(prometheus.NewRegistry()))
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
			code, status := proxytest.GetStatus(t, front, "/api/v1/pods")
			if code != http.StatusServiceUnavailable || status.Message != tt.want {
				t.Errorf("%d %q, want 503 %q", code, status.Message, tt.want)
			}
		})
	}
}

// untilDone is the body of a watch that ends with its request, and not cleanly.
type untilDone struct{ ctx context.Context }

func (b untilDone) Read([]byte) (int, error) { <-b.ctx.Done(); return 0, context.Cause(b.ctx) }
func (untilDone) Close() error               { return nil }

func TestDrainEndsAWatchThatOutlivesItsUpstream(t *testing.T) {
	p, front := newFront(t, func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: untilDone{r.Context()}, Request: r,
		}, nil
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
}
