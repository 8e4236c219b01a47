package liveness

import (
	"crypto/tls"
	"net/http"
	"net/url"
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

// Transport opens connections to one apiserver. It changes neither requests nor responses.
type Transport struct {
	*http.Transport
	conns *Conns
}

// TransportOptions are the options of NewTransport.
type TransportOptions struct {
	TLS   *tls.Config
	Proxy func(*http.Request) (*url.URL, error) // as in http.Transport
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
	d := &dialer{conns: cs, config: o.TLS}
	if !o.Upgrades {
		d.owner = t
	}
	t.Transport = &http.Transport{
		Proxy:               o.Proxy,
		DialContext:         d.dialProxy,
		DialTLSContext:      d.dial,
		TLSClientConfig:     o.TLS.Clone(),
		DisableCompression:  true, // otherwise it requests gzip by itself, and decompresses
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: maxIdle,
	}
	if o.Upgrades {
		t.DisableKeepAlives = true // keeping connections for rare refused upgrades is not worth it
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

// CloseIdle closes the unused connections of t. net/http itself closes only those of
// HTTP/1.1.
func (t *Transport) CloseIdle(allIsOver bool) {
	t.CloseIdleConnections()
	for _, c := range t.conns.list() {
		if c.owner == t && c.idle(allIsOver) {
			c.Close()
		}
	}
}
