package liveness

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// ackTimeout is how long the kernel waits for acknowledgements. It is the only check of
	// an upgraded connection, on which either side may be silent for hours.
	ackTimeout = 20 * time.Second

	// keepAlive is the silence after which the kernel sends keep-alives, for gateways on the
	// way that drop idle connections.
	keepAlive = 30 * time.Second

	// idleTimeout is how long an unused connection is kept, as client-go does.
	idleTimeout = 90 * time.Second

	// maxIdle is how many unused HTTP/1.1 connections are kept, for load balancers that do
	// not support HTTP/2.
	maxIdle = 100
)

// MaxSteps bounds a ping or probe, in units of Timeouts.Loss: one each to connect, for TLS, and
// for the answer, and one more.
const MaxSteps = 4

// Transport opens connections to one apiserver, and pings it. It changes neither requests nor
// responses.
type Transport struct {
	*http.Transport
	conns    *Conns
	open     context.Context // ends with Close
	endPings context.CancelFunc

	mu      sync.Mutex
	pinging bool
	pinged  time.Time // start of the last ping
}

// TransportOptions are the options of NewTransport.
type TransportOptions struct {
	TLS   *tls.Config
	Proxy func(*http.Request) (*url.URL, error) // as in http.Transport; no proxy gets TLS's client certificate
	// Upgrades makes it a transport for requests that are upgraded (exec, attach,
	// port-forward): its connections use HTTP/1.1 and are not monitored.
	Upgrades bool
	// StreamWindow is the flow control window of an HTTP/2 stream, in bytes; 0 is net/http's
	// default.
	StreamWindow int
}

// NewTransport returns a transport whose connections are added to cs, unless they are
// upgraded.
func (cs *Conns) NewTransport(o TransportOptions) *Transport {
	t := &Transport{conns: cs}
	t.open, t.endPings = context.WithCancel(context.Background())
	d := &dialer{conns: cs, config: o.TLS}
	if !o.Upgrades {
		d.owner = t
	}
	t.Transport = &http.Transport{
		Proxy:               d.choose(o.Proxy),
		DialContext:         d.dialProxy,
		DialTLSContext:      d.dial,
		TLSClientConfig:     o.TLS.Clone(),
		DisableCompression:  true, // otherwise it requests gzip by itself, and decompresses
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: maxIdle,

		OnProxyConnectResponse: checkTunnel,
	}
	if o.Upgrades {
		t.DisableKeepAlives = true // keeping connections for rare refused upgrades is not worth it
		return t
	}
	t.ForceAttemptHTTP2 = true // which net/http does not do by itself for own dialers
	if o.StreamWindow > 0 {
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: o.StreamWindow}
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.newest = t
	return t
}

// checkTunnel returns an error if an HTTP proxy does not connect the hub. net/http's own would be the proxy's
// words alone, as if the apiserver had answered.
func checkTunnel(_ context.Context, proxy *url.URL, req *http.Request, res *http.Response) error {
	if res.StatusCode == http.StatusOK {
		return nil
	}
	return fmt.Errorf("the HTTP proxy %s answers %d %s when the hub asks for %s", proxy.Host, res.StatusCode, http.StatusText(res.StatusCode), req.Host)
}

// Close closes the unused connections of t, also new ones that are about to carry their first
// request, and ends its pings: what is in flight is no longer monitored. net/http alone would
// keep an HTTP/2 connection on which it has just canceled a request.
func (t *Transport) Close() {
	t.endPings()
	t.CloseIdleConnections()
	for _, c := range t.conns.list() {
		if now := c.state(); c.owner == t && (!now.used || !now.busy) {
			c.Close()
		}
	}
}

// lastPing returns the start of the last ping, or the zero time.
func (t *Transport) lastPing() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pinged
}

// ping pings the apiserver in the background, unless a ping is under way. since is when the
// silence began.
func (t *Transport) ping(since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pinging {
		return
	}
	t.pinging, t.pinged = true, time.Now()
	go func() {
		t.doPing(since)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pinging = false
	}()
}

// doPing reports only a failure to get a connection. If the connection fails later, its Conn
// has noticed. The loss of the apiserver ends the dial or the connection, and so the ping.
func (t *Transport) doPing(since time.Time) {
	ctx, cancel := context.WithTimeout(t.open, MaxSteps*t.conns.timeouts.Loss)
	defer cancel()
	a := &Attempt{Probe: true, Strict: true, Since: since}
	req := a.Start((&http.Request{
		Method: http.MethodOptions,
		URL:    &url.URL{Scheme: t.conns.address.Scheme, Host: t.conns.address.Host, Opaque: "*"},
		Header: http.Header{},
	}).WithContext(ctx))
	res, err := t.RoundTrip(req)
	a.End()
	switch {
	case err == nil:
		_ = res.Body.Close() // of no interest, and empty
	case ctx.Err() == nil && !a.Connected() && !IsUnresponsive(err):
		t.conns.server.ConnectFailed(err)
	}
}
