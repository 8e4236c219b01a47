package upstream

import (
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// server is one apiserver. It counts as up, and as accepting the node's credentials, until
// something else is known.
type server struct {
	address *url.URL
	log     *slog.Logger
	limits  Limits
	lease   string // path: see leasePath
	conns   *liveness.Conns

	health   *breaker   // for everybody
	auth     *breaker   // for requests with the node's credentials
	checking sync.Mutex // held during a check of the node's credentials: one is enough for all requests
	checks   *checkTrigger

	up, lastChange, refused prometheus.Gauge
	starved                 prometheus.Counter
	starvedLog              rate.Sometimes
	availability            [2]*availability // of all apiservers, by Identity
	index                   int              // of this one there
	markAnswered            func()           // called with each useful answer; must not call back
	responded               *atomic.Bool     // of Upstream

	transports atomic.Pointer[transports]
}

func newServer(address *url.URL, node string, limits Limits, log *slog.Logger, m *Metrics) *server {
	s := &server{
		address: address,
		log:     log.With("apiserver", address.Host),
		limits:  limits,
		lease:   leasePath(node),
		checks:  newCheckTrigger(limits),

		up:         m.serverUp.WithLabelValues(address.Host),
		lastChange: m.lastChange.WithLabelValues(address.Host),
		refused:    m.refused.WithLabelValues(address.Host),
		starved:    m.starved.WithLabelValues(address.Host),
		starvedLog: rate.Sometimes{Interval: time.Minute},
	}
	s.conns = liveness.NewConns(s, address, liveness.Timeouts{Loss: limits.Loss, IdlePing: limits.IdlePing}, s.log)
	s.health, s.auth = newBreaker(s.onHealth), newBreaker(s.onAuth)
	s.setGauges(true, s.health.since)
	return s
}

// roundTrip sends a client's request to this server, and updates the breakers by the result.
// An error before the request got a connection is a *dialError.
func (s *server) roundTrip(req *http.Request) (*http.Response, error) {
	a, began := &liveness.Attempt{}, time.Now()
	used := s.transports.Load()
	res, err := s.send(a, req)
	switch {
	case err == nil && res.StatusCode == http.StatusUnauthorized && authn.IdentityOf(req.Context()) == authn.Node:
		return s.confirmUnauthorized(req, res, used)
	case err == nil:
		return s.handleResponse(req, res)
	case !a.Connected():
		err = asDialError(err) // also if an HTTP proxy refused
		if req.Context().Err() == nil && !liveness.IsUnresponsive(err) {
			s.ConnectFailed(err)
		}
	default:
		s.handleFailure(req, err, began)
	}
	return nil, err
}

// send sends req to this server, without updating the breakers.
func (s *server) send(a *liveness.Attempt, req *http.Request) (*http.Response, error) {
	out := a.Start(req)
	target := *exactPath(req.URL)
	target.Scheme, target.Host = s.address.Scheme, s.address.Host
	out.URL, out.Host = &target, s.address.Host

	res, err := s.transports.Load().of(out).RoundTrip(out)
	if err != nil {
		a.End()
		return nil, err
	}
	s.responded.Store(true)
	a.Answered(res)
	return res, nil
}

func (s *server) setCredentials(creds *Credentials) {
	old := s.transports.Swap(newTransports(s.conns, creds))
	if creds.Missing != nil {
		s.auth.open(time.Now(), creds.Missing, nil)
	} else {
		s.auth.close(time.Now(), "the node has other credentials", nil)
	}
	if old != nil {
		for _, t := range old.all {
			t.CloseIdleConnections()
		}
	}
}

// onHealth records that the apiserver can no longer be reached, or does not serve the node, or
// that this is over.
func (s *server) onHealth(c change) {
	up := c.cause == nil
	s.setGauges(up, c.at)
	s.report(authn.Caller, c)
	s.report(authn.Node, c)
	switch {
	case up:
		s.log.Info("apiserver answers again", "after", c.lasted)
	case is[*notServingError](c.cause):
		s.log.Warn("apiserver counts as lost", "err", c.cause)
	default:
		s.log.Warn("apiserver cannot be reached", "err", c.cause)
	}
}

// onAuth records that the apiserver no longer accepts the node's credentials, or that this is
// over.
func (s *server) onAuth(c change) {
	accepted := c.cause == nil
	s.report(authn.Node, c)
	if accepted {
		s.refused.Set(0)
		s.log.Info("requests are sent in the node's name again", "reason", c.reason, "after", c.lasted)
		return
	}
	s.refused.Set(1)
	if !is[*MissingError](c.cause) {
		s.log.Warn("apiserver refuses the node's credentials; the node is served from the cache until it has others", "err", c.cause)
	}
}

// report records a change in the availability for requests of id.
func (s *server) report(id authn.Identity, c change) {
	if c.cause == nil {
		s.availability[id].closed(s.index, c.at)
	} else {
		s.availability[id].opened(s.index, c.at)
	}
}

// unavailableFor returns why no request of id is sent to the apiserver, or nil.
func (s *server) unavailableFor(id authn.Identity) error {
	_, err := s.unavailableSince(id)
	return err
}

// unavailableSince is unavailableFor, and since when.
func (s *server) unavailableSince(id authn.Identity) (time.Time, error) {
	if since, err := s.health.state(); err != nil || id != authn.Node {
		return since, err
	}
	return s.auth.state()
}

// lost marks the apiserver down.
func (s *server) lost(cause error) { s.health.open(time.Now(), cause, nil) }

// found marks the apiserver up.
func (s *server) found() {
	s.markAnswered()
	s.health.close(time.Now(), "", nil)
}

// answered records that a request was answered. It does not mark an apiserver up that did
// not serve the node: not every answer needs its storage.
func (s *server) answered() {
	s.markAnswered()
	s.health.close(time.Now(), "", is[*notServingError])
}

// Down returns why the apiserver cannot be reached, or nil.
func (s *server) Down() error { return s.health.err() }

// Unresponsive marks the apiserver down because it is silent on all connections. If it was up
// before, or down for another reason, its requests in flight fail at once.
func (s *server) Unresponsive(cause error) {
	was := s.health.err()
	s.lost(cause)
	if !liveness.IsUnresponsive(was) {
		s.conns.CloseAll(cause)
	}
}

// Starved counts, and logs once a minute, that silence was not taken for a loss.
func (s *server) Starved(silence time.Duration) {
	s.starved.Inc()
	s.starvedLog.Do(func() {
		s.log.Warn("the hub gets too little CPU to hear whether the apiserver answers, or was suspended, so its silence does not count as a loss yet; if this is repeated, look for what takes the node's CPU, and raise the hub's share (CPUWeight of edgehub.service)", "silence", silence.Round(time.Millisecond))
	})
}

// ConnectFailed handles a failure to connect other than silence. Without an open connection
// the apiserver is lost. With one, the cause may be a caller that opens many connections
// (upgrades need one each): load balancers limit connections per client, and this machine
// has limited ports and files.
func (s *server) ConnectFailed(err error) {
	if s.health.err() == nil && s.conns.AnyEstablished() {
		s.checks.trigger(time.Now())
		return
	}
	s.lost(err)
}
