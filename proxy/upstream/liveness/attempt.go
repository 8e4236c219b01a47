package liveness

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Attempt is one request on its way to one apiserver. It tells the line that
// carries it what is owed.
type Attempt struct {
	Strict bool // a probe: it is answered at once, or the apiserver is lost
	Since  time.Time

	mu        sync.Mutex
	http2     pinger // of the line to come, or nil
	conn      *Conn  // nil: none yet
	proxied   *Conn  // nil, or one on which an HTTP proxy, and then TLS, are being talked to
	before    int64  // what the line had received when it got the request, in bytes
	connected bool
	streaming bool // the answer has begun, and may pause for as long as it likes
	ended     bool
}

type attemptKey struct{}

// Start returns out of req, to be sent under the attempt's eyes.
func (a *Attempt) Start(req *http.Request) *http.Request {
	ctx := context.WithValue(req.Context(), attemptKey{}, a)
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { a.getConn() },
		GotConn:          func(info httptrace.GotConnInfo) { a.gotConn(info.Conn) },
		TLSHandshakeDone: func(tls.ConnectionState, error) { a.handshakeDone() },
	}))
}

// handshakeStarted notes a connection that net/http will shake hands on by itself.
func (a *Attempt) handshakeStarted(c *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proxied = c
	c.requestStarted(time.Now(), true)
}

func (a *Attempt) handshakeDone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proxied != nil {
		a.proxied.handshakeDone()
		a.proxied = nil
	}
}

// gotConn notes the connection of the request. It is called again when a
// transport sends the request once more.
func (a *Attempt) gotConn(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = true
	secure, ok := conn.(*tls.Conn)
	if !ok || a.ended {
		return
	}
	c, ok := secure.NetConn().(*Conn)
	if !ok || c.owner == nil {
		return // it is to be upgraded
	}
	if a.conn != nil {
		a.conn.requestDone(a.Strict)
	}
	c.attach(a.http2)
	a.conn, a.before = c, c.bytesRead()
	since := a.Since
	if since.IsZero() {
		since = time.Now()
	}
	c.requestStarted(since, a.Strict)
}

// getConn notes that the request has no connection yet, or none any more: a
// transport that sends it once more has seen that the first time did not count.
func (a *Attempt) getConn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = false
}

// Connected reports whether the request got a connection.
func (a *Attempt) Connected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connected
}

// Received is how many bytes have come on the request's line since it got the request.
func (a *Attempt) Received() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == nil {
		return 0
	}
	return a.conn.bytesRead() - a.before
}

// Answered takes over res's body, whose end ends the attempt.
func (a *Attempt) Answered(res *http.Response) {
	if res.StatusCode == http.StatusSwitchingProtocols {
		a.End()
		return
	}
	if mayPause(res.Request) {
		a.mu.Lock()
		if a.conn != nil && !a.ended {
			a.streaming = true
			a.conn.addIdleStreams(+1)
			a.conn.requestDone(a.Strict)
		}
		a.mu.Unlock()
	}
	res.Body = &responseBody{res.Body, a}
}

// End notes that nothing is owed any more.
func (a *Attempt) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.ended = true
	switch {
	case a.conn == nil:
	case a.streaming:
		a.conn.addIdleStreams(-1)
	default:
		a.conn.requestDone(a.Strict)
	}
}

// mayPause reports whether the answer to req, once it has begun, may be silent for
// as long as it likes: all but what is read at one go.
func mayPause(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return false
	}
	switch info.Verb {
	case "get", "list":
		return info.Subresource == "log" || info.Subresource == "proxy"
	case "create", "update", "patch", "delete", "deletecollection":
		return info.Subresource == "proxy"
	}
	return true
}

// responseBody is the body of an answer that is still owed.
type responseBody struct {
	io.ReadCloser
	attempt *Attempt
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.attempt.End()
	}
	return n, err
}

func (b *responseBody) Close() error {
	b.attempt.End()
	return b.ReadCloser.Close()
}
