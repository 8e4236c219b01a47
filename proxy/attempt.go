package proxy

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

// attempt is one request on its way to one apiserver. It tells the line that
// carries it what is owed.
type attempt struct {
	strict bool // a probe: it is answered at once, or the apiserver is lost
	since  time.Time

	mu        sync.Mutex
	http2     pinger // of the line to come, or nil
	line      *line  // nil: none yet
	proxied   *line  // nil, or one on which an HTTP proxy, and then TLS, are being talked to
	before    int64  // what the line had received when it got the request, in bytes
	connected bool
	streaming bool // the answer has begun, and may pause for as long as it likes
	ended     bool
}

type attemptKey struct{}

// start returns out of req, to be sent under the attempt's eyes.
func (a *attempt) start(req *http.Request) *http.Request {
	ctx := context.WithValue(req.Context(), attemptKey{}, a)
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:          func(string) { a.unconnected() },
		GotConn:          func(info httptrace.GotConnInfo) { a.carriedBy(info.Conn) },
		TLSHandshakeDone: func(tls.ConnectionState, error) { a.secured() },
	}))
}

// securing notes a connection that net/http will shake hands on by itself.
func (a *attempt) securing(l *line) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proxied = l
	l.await(time.Now(), true)
}

func (a *attempt) secured() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proxied != nil {
		a.proxied.secured()
		a.proxied = nil
	}
}

// carriedBy notes the connection of the request. It is called again when a
// transport sends the request once more.
func (a *attempt) carriedBy(conn net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = true
	secure, ok := conn.(*tls.Conn)
	if !ok || a.ended {
		return
	}
	l, ok := secure.NetConn().(*line)
	if !ok || l.owner == nil {
		return // it is to be upgraded
	}
	if a.line != nil {
		a.line.settle(a.strict)
	}
	l.carries(a.http2)
	a.line, a.before = l, l.arrived()
	since := a.since
	if since.IsZero() {
		since = time.Now()
	}
	l.await(since, a.strict)
}

// unconnected notes that the request has no connection yet, or none any more: a
// transport that sends it once more has seen that the first time did not count.
func (a *attempt) unconnected() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.connected = false
}

// reached reports whether the request got a connection.
func (a *attempt) reached() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connected
}

// received is how many bytes have come on the request's line since it got the request.
func (a *attempt) received() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.line == nil {
		return 0
	}
	return a.line.arrived() - a.before
}

// answered takes over res's body, whose end ends the attempt.
func (a *attempt) answered(res *http.Response) {
	if res.StatusCode == http.StatusSwitchingProtocols {
		a.end()
		return
	}
	if pauses(res.Request) {
		a.mu.Lock()
		if a.line != nil && !a.ended {
			a.streaming = true
			a.line.stream(+1)
			a.line.settle(a.strict)
		}
		a.mu.Unlock()
	}
	res.Body = &owedBody{res.Body, a}
}

// end notes that nothing is owed any more.
func (a *attempt) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.ended = true
	switch {
	case a.line == nil:
	case a.streaming:
		a.line.stream(-1)
	default:
		a.line.settle(a.strict)
	}
}

// pauses reports whether the answer to req, once it has begun, may be silent for
// as long as it likes: all but what is read at one go.
func pauses(req *http.Request) bool {
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

// owedBody is the body of an answer that is still owed.
type owedBody struct {
	io.ReadCloser
	attempt *attempt
}

func (b *owedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.attempt.end()
	}
	return n, err
}

func (b *owedBody) Close() error {
	b.attempt.end()
	return b.ReadCloser.Close()
}
