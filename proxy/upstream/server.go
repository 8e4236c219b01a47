package upstream

import (
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// server is one apiserver.
type server struct {
	address          *url.URL
	log              *slog.Logger
	limits           Limits
	health           *health
	checks           *checkTrigger
	lease            string // path: see leasePath
	auth             *authBreaker
	nodeAvailability *nodeAvailability
	conns            *liveness.Conns

	transports atomic.Pointer[transports]
}

// newServer returns an apiserver that counts as up, and as accepting the node's credentials.
// changed is called when it goes up or down, forNode when that changes for the node; neither
// may call the server.
func newServer(address *url.URL, node string, limits Limits, log *slog.Logger, m *Metrics, changed, forNode func(up bool, at time.Time)) *server {
	log = log.With("apiserver", address.Host)
	up, last := m.serverUp.WithLabelValues(address.Host), m.lastChange.WithLabelValues(address.Host)
	s := &server{
		address: address, log: log, limits: limits, checks: newCheckTrigger(limits), lease: leasePath(node),
		nodeAvailability: &nodeAvailability{onChange: forNode, up: true, authorized: true},
	}
	s.conns = liveness.NewConns(s, address, limits.timeouts(), log)
	s.health = newHealth(log, func(isUp bool, at time.Time) {
		setGauges(up, last, isUp, at)
		changed(isUp, at)
		s.nodeAvailability.setUp(isUp, at)
	})
	s.auth = newAuthBreaker(log, m.refused.WithLabelValues(address.Host), s.nodeAvailability.setAuthorized)
	setGauges(up, last, true, s.health.since)
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
	a.Answered(res)
	return res, nil
}

func (s *server) setCredentials(creds *Credentials) {
	old := s.transports.Swap(newTransports(s.conns, creds))
	if creds.Missing != nil {
		s.auth.open(creds.Missing, func() bool { return false })
	} else {
		s.auth.close("the node has other credentials")
	}
	if old != nil {
		for _, t := range old.all {
			t.CloseIdleConnections()
		}
	}
}

// Down returns why the apiserver cannot be reached, or nil.
func (s *server) Down() error { return s.health.down() }

// Unresponsive marks the apiserver down because it is silent on all connections. If it was up
// before, or down for another reason, its requests in flight fail at once.
func (s *server) Unresponsive(cause error) {
	was := s.health.down()
	s.health.failed(time.Now(), cause)
	if !liveness.IsUnresponsive(was) {
		s.conns.CloseAll(cause)
	}
}
