package liveness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
)

// Attempt is one request to one apiserver. It reports to its connection whether a response
// is pending.
type Attempt struct {
	Probe  bool      // the hub's own request, which is also sent to an apiserver that is down
	Strict bool      // a ping or probe: without an answer at once the apiserver is lost
	Since  time.Time // since when the answer is pending; zero: since it got a connection

	cancel context.CancelCauseFunc // of the request

	mu        sync.Mutex
	tries     int   // connections that it got
	conn      *Conn // nil: none yet
	proxied   *Conn // nil, or one in the handshakes with a proxy, and then TLS
	before    int64 // bytes that the connection had received before the request
	connected bool
	streaming bool // the response has begun, and may pause for any time
	ended     bool
}

// maxTries is how many connections a request gets. net/http repeats an idempotent request if its
// connection breaks that came from the pool, even if it had never carried one; an apiserver that
// breaks them off could keep a request, and the hub, busy for ever.
const maxTries = 8

// errBreaksOff is the error of a request whose connections all broke.
var errBreaksOff = fmt.Errorf("%d connections in a row broke before the answer", maxTries-1)

type attemptKey struct{}

// attemptOf returns the attempt of a request's context, which its dial has, too.
func attemptOf(ctx context.Context) *Attempt {
	if a, ok := ctx.Value(attemptKey{}).(*Attempt); ok {
		return a
	}
	return &Attempt{}
}

// Start returns req with the hooks by which the attempt observes it.
func (a *Attempt) Start(req *http.Request) *http.Request {
	ctx, cancel := context.WithCancelCause(context.WithValue(req.Context(), attemptKey{}, a))
	a.cancel = cancel
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { a.getConn() },
		GotConn:          func(info httptrace.GotConnInfo) { a.gotConn(info.Conn) },
		TLSHandshakeDone: func(tls.ConnectionState, error) { a.handshakeDone() },
	}))
}

// handshakeStarted records a connection on which net/http does the TLS handshake.
func (a *Attempt) handshakeStarted(c *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proxied = c
	c.start(pendingHandshake, time.Now())
}

func (a *Attempt) handshakeDone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proxied != nil {
		a.proxied.handshakeDone()
		a.proxied = nil
	}
}

// gotConn records the connection of the request. It is called again if the transport retries
// the request.
func (a *Attempt) gotConn(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = true
	if a.tries++; a.tries == maxTries {
		a.cancel(errBreaksOff)
	}
	secure, ok := conn.(*tls.Conn)
	if !ok || a.ended {
		return
	}
	if toProxy, ok := secure.NetConn().(*tls.Conn); ok {
		secure = toProxy
	}
	c, ok := secure.NetConn().(*Conn)
	if !ok || c.owner == nil {
		return // it will be upgraded
	}
	if a.conn != nil {
		a.conn.done(a.pending())
	}
	c.carry()
	a.conn, a.before = c, c.state().received
	since := a.Since
	if since.IsZero() {
		since = time.Now()
	}
	c.start(a.pending(), since)
}

func (a *Attempt) pending() pending {
	if a.Strict {
		return pendingPing
	}
	return pendingResponse
}

// getConn records that the request has no connection yet, or, if the transport retries it,
// no longer.
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

// Received returns how many bytes the connection has received since it got the request.
func (a *Attempt) Received() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn == nil {
		return 0
	}
	return a.conn.state().received - a.before
}

// Answered wraps res's body, whose end ends the attempt.
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
			a.conn.done(a.pending())
		}
		a.mu.Unlock()
	}
	res.Body = &responseBody{res.Body, a, a.endOverdue(res.Request)}
}

// overdueAfter is how much later than its timeoutSeconds a watch is ended. An apiserver ends it in time; behind a
// proxy that speaks HTTP/1.1, an open connection to one that is gone looks like a watch without news.
const overdueAfter = 10 * time.Second

var errOverdue = errors.New("the apiserver has not ended the watch at its timeoutSeconds")

// endOverdue returns the timer that ends a watch, or nil.
func (a *Attempt) endOverdue(req *http.Request) *time.Timer {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok || info.Verb != "watch" {
		return nil
	}
	seconds, err := strconv.ParseInt(req.URL.Query().Get("timeoutSeconds"), 10, 32)
	if err != nil || seconds <= 0 {
		return nil
	}
	return time.AfterFunc(time.Duration(seconds)*time.Second+overdueAfter, func() { a.cancel(errOverdue) })
}

// End records that no response is pending any more.
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
		a.conn.done(a.pending())
	}
}

// mayPause reports whether the response to req may pause for any time after it has begun.
// Ordinary reads and writes of objects may not; watches, logs and proxied requests may.
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

// responseBody is the body of a pending response.
type responseBody struct {
	io.ReadCloser
	attempt *Attempt
	overdue *time.Timer // nil, or ends a watch that its apiserver should have ended
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *responseBody) Close() error {
	b.end()
	return b.ReadCloser.Close()
}

func (b *responseBody) end() {
	b.attempt.End()
	if b.overdue != nil {
		b.overdue.Stop()
	}
}
