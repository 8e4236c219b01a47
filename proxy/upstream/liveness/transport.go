package liveness

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"time"
)

const (
	// ackTimeout is how long the kernel waits for what was sent to be
	// acknowledged. It is all that watches over an upgraded connection, on which
	// either side may be silent for hours.
	ackTimeout = 20 * time.Second

	// keepAlive is the silence after which the kernel asks the other side's, for
	// the sake of gateways on the way that forget connections.
	keepAlive = 30 * time.Second

	// idleTimeout is how long an unused connection is kept, as client-go does.
	idleTimeout = 90 * time.Second

	// maxIdle is how many unused HTTP/1.1 connections are kept, where a load
	// balancer on the way does not speak HTTP/2.
	maxIdle = 100
)

// Transport opens connections to one apiserver. It adds nothing to a request and takes
// nothing from an answer.
type Transport struct {
	*http.Transport
	conns *Conns
}

// TransportOptions are what transports differ in.
type TransportOptions struct {
	TLS   *tls.Config
	Proxy func(*http.Request) (*url.URL, error) // as in http.Transport
	// Upgrades makes it a transport for requests that are upgraded (exec, attach,
	// port-forward): its connections speak HTTP/1.1 and are not watched.
	Upgrades bool
	// StreamWindow is how much of an answer may be sent ahead by HTTP/2, in bytes; 0
	// stands for net/http's default.
	StreamWindow int
}

// NewTransport returns a transport whose connections are among cs, unless they are
// upgraded.
func (cs *Conns) NewTransport(o TransportOptions) *Transport {
	t := &Transport{conns: cs}
	d := &dialer{conns: cs, config: o.TLS}
	if !o.Upgrades {
		d.owner = t
	}
	t.Transport = &http.Transport{
		Proxy:               o.Proxy,
		DialContext:         d.dialProxy,
		DialTLSContext:      d.dial,
		TLSClientConfig:     o.TLS.Clone(),
		DisableCompression:  true, // or it would ask for gzip by itself, and undo it
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: maxIdle,
	}
	if o.Upgrades {
		t.DisableKeepAlives = true // one refused upgrade in a while is not worth a connection
		return t
	}
	if o.StreamWindow > 0 {
		t.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: o.StreamWindow}
	}
	if err := enablePing(t.Transport); err != nil {
		cs.log.Error("connections to the apiserver cannot be pinged; probes alone tell whether it is there", "err", err)
	}
	return t
}

// CloseIdle drops the connections of t that nobody uses. net/http knows those of
// HTTP/1.1 only.
func (t *Transport) CloseIdle(allIsOver bool) {
	t.CloseIdleConnections()
	for _, c := range t.conns.list() {
		if c.owner == t && c.idle(allIsOver) {
			c.Close()
		}
	}
}
