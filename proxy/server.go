package proxy

import (
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
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

// server is one apiserver.
type server struct {
	address    *url.URL
	log        *slog.Logger
	limits     Limits
	net        network
	health     *health
	doubts     *doubts
	lease      string // its path: see leasePath
	acceptance *acceptance
	forNode    *usable
	lines      *lines
	peers      func() []*server // all apiservers, this one among them
	asked      chan time.Time   // to run: a probe is wanted; holds one

	transports atomic.Pointer[transports]
}

// newServer returns an apiserver that counts as up, and as one that takes the node's
// credentials. changed hears of each change of the one, and forNode of each change of
// both together; they must not call back.
func newServer(address *url.URL, node string, limits Limits, log *slog.Logger, m *Metrics, changed, forNode func(up bool, at time.Time)) *server {
	log = log.With("apiserver", address.Host)
	up, last := m.serverUp.WithLabelValues(address.Host), m.lastChange.WithLabelValues(address.Host)
	s := &server{
		address: address, log: log, limits: limits, net: tcp(), lines: newLines(), doubts: newDoubts(limits), lease: leasePath(node),
		forNode: &usable{changed: forNode, up: true, taken: true},
		asked:   make(chan time.Time, 1),
	}
	s.peers = func() []*server { return []*server{s} }
	s.health = newHealth(log, func(isUp bool, at time.Time) {
		report(up, last, isUp, at)
		changed(isUp, at)
		s.forNode.setUp(isUp, at)
	})
	s.acceptance = newAcceptance(log, m.refused.WithLabelValues(address.Host), s.forNode.setTaken)
	report(up, last, true, s.health.since)
	return s
}

// roundTrip sends a client's request to this server, and draws conclusions from
// what becomes of it. An error before the request got a connection is a
// *dialError.
func (s *server) roundTrip(req *http.Request) (*http.Response, error) {
	a, began := &attempt{}, time.Now()
	used := s.transports.Load()
	res, err := s.send(a, req)
	switch {
	case err == nil && res.StatusCode == http.StatusUnauthorized && IdentityOf(req.Context()) == Node:
		return s.questioned(req, res, used)
	case err == nil:
		return s.judge(req, res)
	case !a.reached():
		err = asDialError(err) // an HTTP proxy on the way may have refused, too
		if req.Context().Err() == nil && !isSilent(err) {
			s.unconnected(err)
		}
	default:
		s.unanswered(req, err, began)
	}
	return nil, err
}

// send sends req to this server and draws no conclusions.
func (s *server) send(a *attempt, req *http.Request) (*http.Response, error) {
	out := a.start(req)
	target := *asSent(req.URL)
	target.Scheme, target.Host = s.address.Scheme, s.address.Host
	out.URL, out.Host = &target, s.address.Host

	res, err := s.transports.Load().of(out).RoundTrip(out)
	if err != nil {
		a.end()
		return nil, err
	}
	a.answered(res)
	return res, nil
}

func (s *server) setCredentials(creds *Credentials) {
	old := s.transports.Swap(s.newTransports(creds))
	if creds.Missing != nil {
		s.acceptance.refuse(creds.Missing, func() bool { return false })
	} else {
		s.acceptance.take("the node has other credentials")
	}
	if old != nil {
		s.closeIdle(old, false)
	}
}

// closeIdle drops the connections of t that nobody uses. net/http knows those of
// HTTP/1.1 only.
func (s *server) closeIdle(t *transports, allIsOver bool) {
	for _, tr := range t.all {
		tr.CloseIdleConnections()
	}
	for _, l := range s.lines.snapshot() {
		if l.owner == t && l.unused(allIsOver) {
			l.Close()
		}
	}
}

// transports are the connections that one generation of credentials opens.
// HTTP/2 has no way to upgrade a request (exec, attach, port-forward), so those
// have connections of their own; so have callers that nothing is lent to.
type transports struct {
	missing *MissingError        // why there are no credentials, or nil
	token   string               // of the node, or empty
	plain   [2]http.RoundTripper // by Identity
	upgrade [2]http.RoundTripper // by Identity
	all     []*http.Transport
}

func (s *server) newTransports(creds *Credentials) *transports {
	t := &transports{missing: creds.Missing}
	if creds.Certificate == nil {
		t.token = creds.Token
	}
	for _, id := range []Identity{Own, Node} {
		plain := s.newTransport(&dialer{server: s, owner: t, config: creds.tlsConfig(id, "h2", "http/1.1")}, creds)
		if id == Own {
			plain.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow}
		}
		if err := pingable(plain); err != nil {
			s.log.Error("connections to the apiserver cannot be pinged; probes alone tell whether it is there", "err", err)
		}
		// One refused upgrade in a while is not worth a connection.
		upgrade := s.newTransport(&dialer{server: s, config: creds.tlsConfig(id, "http/1.1")}, creds)
		upgrade.DisableKeepAlives = true
		t.plain[id], t.upgrade[id] = plain, upgrade
		t.all = append(t.all, plain, upgrade)
	}
	return t
}

// of returns the transport for req, after lending it the node's token where the
// node is known by one.
func (t *transports) of(req *http.Request) http.RoundTripper {
	id := IdentityOf(req.Context())
	if id == Node && t.token != "" {
		req.Header = req.Header.Clone()
		req.Header.Set("Authorization", "Bearer "+t.token)
	}
	if req.Header.Get("Upgrade") != "" {
		return t.upgrade[id]
	}
	return t.plain[id]
}

// newTransport returns a transport that adds nothing to a request and takes
// nothing from an answer.
func (s *server) newTransport(d *dialer, creds *Credentials) *http.Transport {
	return &http.Transport{
		Proxy:               creds.Proxy,
		DialContext:         d.dialProxy,
		DialTLSContext:      d.dial,
		TLSClientConfig:     d.config.Clone(),
		DisableCompression:  true, // or it would ask for gzip by itself, and undo it
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: maxIdle,
	}
}
