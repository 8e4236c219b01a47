package upstream_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/proxy/upstream"
)

// moody is an apiserver that serves the node, and treats everybody else as their
// requests ask for.
type moody struct{ questions atomic.Int64 }

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	switch {
	case r.URL.Path == nodeLease:
		m.questions.Add(1)
	case r.Header.Get("Authorization") == "":
	case r.URL.Query().Has("break"):
		breakOff(r)
	case r.URL.Query().Has("abort"):
		panic(http.ErrAbortHandler)
	case r.URL.Query().Has("hang"):
		<-r.Context().Done()
	case r.URL.Query().Has("timeout"):
		w.WriteHeader(http.StatusGatewayTimeout) // before it authenticates
	case r.URL.Query().Has("version"):
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

// Strangers make the apiserver answer, break off and go away as badly as they can: the node's writes go on, and
// the hub asks the apiserver seldom.
func TestStrangersTakeNothingFromTheNode(t *testing.T) {
	strangers := map[string]func(ctx context.Context, hub *hubUnderTest, path string){
		"504 to every request": stranger("timeout=1ns"),
		"429 to every request": stranger("version=999999999"),
		"all kinds of answers": func(ctx context.Context, hub *hubUnderTest, path string) {
			for _, query := range []string{"timeout=1ns", "x", "version=9", "abort"} {
				stranger(query)(ctx, hub, path)
			}
		},
		"requests that are broken off":                      stranger("abort"),
		"connections that are broken off":                   stranger("break"),
		"requests that nobody waits for":                    hasty,
		"bodies that do not end":                            halfABody,
		"requests that are no HTTP":                         garbage,
		"headers that are too large":                        largeHeader,
		"upgrades, more than the apiserver has connections": upgrade,
	}
	for name, attack := range strangers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &moody{}
			hub := newHub(t, upstream.Credentials{}, fewConnections(t, m.ServeHTTP))
			if code, text := ask(t, hub, "PUT", "status", ""); code != http.StatusOK {
				t.Fatalf("%d %s", code, text)
			}
			lost := hub.upstream.Lost(t.Context())
			began := time.Now()
			ctx, end := context.WithTimeout(t.Context(), 150*time.Millisecond)
			defer end()
			var all sync.WaitGroup
			for _, path := range []string{"/api/v1/pods", "/api/v1/nodes", "/apis/apps/v1/deployments"} {
				all.Go(func() {
					for ctx.Err() == nil {
						attack(ctx, hub, path)
					}
				})
			}
			for ctx.Err() == nil {
				if code, text := ask(t, hub, "PUT", "status", ""); code != http.StatusOK || text != "" {
					t.Errorf("a write of the node: %d %s", code, text)
				}
			}
			all.Wait()
			if isClosed(lost) {
				t.Error("the cloud was taken for lost")
			}
			took := time.Since(began)
			if n, most := m.questions.Load(), 1+bits.Len(1+uint(took/time.Second)); n > int64(most) { // at 0, 1, 3, 7 s ...
				t.Errorf("the hub asked %d times in %v", n, took)
			}
		})
	}
}

// fewConnections is an apiserver behind a load balancer that closes all connections but
// the first ten at once.
func fewConnections(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := unstartedAPIServer(handler)
	s.Listener = &fullListener{Listener: s.Listener}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

type fullListener struct {
	net.Listener
	open atomic.Int64
}

func (l *fullListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= 10 {
			return &countedConn{Conn: conn, open: &l.open}, nil
		}
		l.open.Add(-1)
		conn.Close()
	}
}

type countedConn struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

func stranger(query string) func(ctx context.Context, hub *hubUnderTest, path string) {
	return func(ctx context.Context, hub *hubUnderTest, path string) {
		askAsStranger(ctx, hub, http.MethodGet, path+"?"+query, http.NoBody)
	}
}

// askAsStranger makes a request of somebody whom the apiserver does not know.
func askAsStranger(ctx context.Context, hub *hubUnderTest, method, path string, body io.Reader) {
	req, err := http.NewRequestWithContext(ctx, method, hub.URL+path, body)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer garbage")
	// A client of its own: on a shared connection, the timeout of one request may fail another.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if res, err := client.Do(req); err == nil {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}

func hasty(ctx context.Context, hub *hubUnderTest, path string) {
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	askAsStranger(ctx, hub, http.MethodGet, path+"?hang", http.NoBody)
}

func halfABody(ctx context.Context, hub *hubUnderTest, path string) {
	header := "POST " + path + " HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n"
	rawly(ctx, hub, header+"Content-Length: 1000000\r\n\r\nbegin")
	rawly(ctx, hub, header+"Transfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n")
}

// rawly sends bytes, reads a little of what comes, and resets the connection.
func rawly(ctx context.Context, hub *hubUnderTest, text string) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", hub.Listener.Addr().String())
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	_ = conn.(*net.TCPConn).SetLinger(0)
	io.WriteString(conn, text)
	_, _ = bufio.NewReader(conn).ReadString('\n')
}

func garbage(ctx context.Context, hub *hubUnderTest, path string) {
	rawly(ctx, hub, "GET "+path+" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
	rawly(ctx, hub, "\x16\x03\x01\x00\xff"+path)
}

func largeHeader(ctx context.Context, hub *hubUnderTest, path string) {
	rawly(ctx, hub, "GET "+path+" HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nX: "+strings.Repeat("x", 60<<10)+"\r\n\r\n")
}

func upgrade(ctx context.Context, hub *hubUnderTest, path string) {
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			rawly(ctx, hub, fmt.Sprintf("POST %s/exec?hang=%d HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", path, i))
		})
	}
	all.Wait()
}
