package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/limits"
	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// echoCloud answers with the length of the body that it has read.
func echoCloud(r *http.Request) (*http.Response, error) {
	n := 0
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", upstream.ErrClientBody, err)
		}
		n = len(body)
	}
	return answerOf(r, io.NopCloser(strings.NewReader(fmt.Sprint(n)))), nil
}

// answerOf is an answer without a length.
func answerOf(r *http.Request, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: body, ContentLength: -1, Request: r}
}

// pipes is a net.Listener in memory, for a synctest bubble.
type pipes chan net.Conn

func (l pipes) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (l pipes) Close() error   { return nil }
func (l pipes) Addr() net.Addr { return &net.TCPAddr{} }

// onOneConnection has body talk to a proxy before cloud, whose server has the hub's
// limits.
func onOneConnection(t *testing.T, cloud roundTripper, body func(t *testing.T, c net.Conn, answers *bufio.Reader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := newProxy(cloud)
		refuseSome := func(r *http.Request) error {
			if r.URL.Path == "/refused" {
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		server := &http.Server{
			Handler: p.Handler(authn.LoopbackFor(refuseSome)), ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 3 * time.Minute,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		}
		listener := make(pipes, 1) // holds the only connection
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(listener) }()
		client, conn := net.Pipe()
		listener <- conn
		body(t, client, bufio.NewReader(client))
		client.Close()
		close(listener)
		server.Close()
		<-done
	})
}

func send(t *testing.T, c net.Conn, format string, args ...any) {
	t.Helper()
	if _, err := fmt.Fprintf(c, format, args...); err != nil {
		t.Fatal(err)
	}
}

func wantAnswer(t *testing.T, answers *bufio.Reader, code int, text string) {
	t.Helper()
	res, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != code || !strings.Contains(string(body), text) {
		t.Fatalf("got %d %s (%v), want %d %s", res.StatusCode, body, err, code, text)
	}
}

const postHead = "POST /api/v1/namespaces/d/pods HTTP/1.1\r\nHost: 127.0.0.1\r\n"

func TestABodyThatStopsArrivingEndsItsRequest(t *testing.T) {
	for name, request := range map[string]string{
		"small":    postHead + "Content-Length: 10\r\n\r\n12345",
		"large":    postHead + "Content-Length: 1000000\r\n\r\n12345",
		"chunked":  postHead + "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
		"no byte":  postHead + "Content-Length: 10\r\n\r\n",
		"upgraded": postHead + "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			onOneConnection(t, echoCloud, func(t *testing.T, c net.Conn, answers *bufio.Reader) {
				began := time.Now()
				send(t, c, "%s", request)
				wantAnswer(t, answers, http.StatusRequestTimeout, `"reason":"Timeout"`)
				if took := time.Since(began); took != limits.BodyTimeout {
					t.Errorf("after %v, want %v", took, limits.BodyTimeout)
				}
				if _, err := answers.ReadByte(); err == nil {
					t.Error("the connection goes on")
				}
			})
		})
	}
}

func TestABodyThatNobodyReadsHoldsItsConnectionNoLonger(t *testing.T) {
	onOneConnection(t, echoCloud, func(t *testing.T, c net.Conn, answers *bufio.Reader) {
		began := time.Now()
		send(t, c, "POST /refused HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n")
		if _, err := io.Copy(io.Discard, answers); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*limits.BodyTimeout {
			t.Errorf("it was held for %v", took)
		}
	})
}

func TestABodyMayBeSlow(t *testing.T) {
	onOneConnection(t, echoCloud, func(t *testing.T, c net.Conn, answers *bufio.Reader) {
		for _, length := range []int{10, limits.MaxReplay + 10} {
			send(t, c, "%sContent-Length: %d\r\n\r\n", postHead, length)
			send(t, c, "%s", bytes.Repeat([]byte("x"), length-10))
			for range 10 {
				time.Sleep(limits.BodyTimeout - time.Second)
				send(t, c, "x")
			}
			wantAnswer(t, answers, http.StatusOK, fmt.Sprint(length))
		}
	})
}

func TestTheCloudMayBeSlow(t *testing.T) {
	slow := func(r *http.Request) (*http.Response, error) {
		var first [10]byte
		if _, err := io.ReadFull(r.Body, first[:]); err != nil {
			return nil, err
		}
		time.Sleep(10 * limits.BodyTimeout) // before it reads on
		res, err := echoCloud(r)
		time.Sleep(10 * limits.BodyTimeout) // before it answers
		if r.Context().Err() != nil {
			t.Error("the request was cancelled while its answer was awaited")
		}
		return res, err
	}
	onOneConnection(t, slow, func(t *testing.T, c net.Conn, answers *bufio.Reader) {
		go fmt.Fprintf(c, "%sContent-Length: %d\r\n\r\n%s", postHead, limits.MaxReplay+10, bytes.Repeat([]byte("x"), limits.MaxReplay+10))
		wantAnswer(t, answers, http.StatusOK, fmt.Sprint(limits.MaxReplay))
		time.Sleep(2 * time.Minute) // idle, and then used again
		send(t, c, "GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
		if res, err := http.ReadResponse(answers, nil); err == nil {
			res.Body.Close()
		}
	})
}

// A watch's request has no body, mostly; one that has is as good once that is whole.
func TestWatchesOutliveAllLimits(t *testing.T) {
	for name, body := range map[string]string{
		"without a body": "\r\n",
		"with a body":    "Content-Length: 2\r\n\r\n{}",
	} {
		t.Run(name, func(t *testing.T) {
			var events *io.PipeReader
			cloud := func(r *http.Request) (*http.Response, error) {
				context.AfterFunc(r.Context(), func() { events.CloseWithError(r.Context().Err()) })
				return answerOf(r, events), nil
			}
			onOneConnection(t, cloud, func(t *testing.T, c net.Conn, answers *bufio.Reader) {
				var feed *io.PipeWriter
				events, feed = io.Pipe() // of the bubble
				send(t, c, "GET /api/v1/pods?watch=1 HTTP/1.1\r\nHost: 127.0.0.1\r\n%s", body)
				res, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal(err)
				}
				lines := bufio.NewReader(res.Body)
				for i := range 5 {
					time.Sleep(time.Hour)
					go fmt.Fprintf(feed, "event %d\n", i)
					if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("event %d\n", i) {
						t.Fatalf("after %d h: %q, %v", i+1, line, err)
					}
				}
				feed.Close()
			})
		})
	}
}

func TestUpgradedConnectionsOutliveAllLimits(t *testing.T) {
	var there net.Conn
	cloud := func(r *http.Request) (*http.Response, error) {
		res := answerOf(r, there)
		res.StatusCode = http.StatusSwitchingProtocols
		res.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}}
		return res, nil
	}
	onOneConnection(t, cloud, func(t *testing.T, c net.Conn, answers *bufio.Reader) {
		var here net.Conn
		there, here = net.Pipe() // of the bubble
		send(t, c, "POST /api/v1/namespaces/d/pods/p/exec?command=sh HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
		if res, err := http.ReadResponse(answers, nil); err != nil || res.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(res, err)
		}
		for i := range 3 {
			time.Sleep(time.Hour)
			send(t, c, "in %d\n", i)
			if line, err := bufio.NewReader(here).ReadString('\n'); err != nil || line != fmt.Sprintf("in %d\n", i) {
				t.Fatalf("after %d h the container gets %q, %v", i+1, line, err)
			}
			time.Sleep(time.Hour)
			send(t, here, "out %d\n", i)
			if line, err := answers.ReadString('\n'); err != nil || line != fmt.Sprintf("out %d\n", i) {
				t.Fatalf("after %d h the client gets %q, %v", i+1, line, err)
			}
		}
		here.Close()
	})
}

func TestABodyThatStopsArrivingOverHTTP2EndsItsRequest(t *testing.T) {
	p := newProxy(roundTripper(echoCloud))
	p.bodyTimeout = 100 * time.Millisecond
	front := httptest.NewUnstartedServer(p.Handler(authn.Loopback))
	front.EnableHTTP2 = true
	front.StartTLS()
	defer front.Close()
	body, more := io.Pipe()
	defer more.Close()
	go io.WriteString(more, "12345")
	res, err := front.Client().Post(front.URL+"/api/v1/namespaces/d/pods", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 || res.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%s %s", res.Proto, res.Status)
	}
}
