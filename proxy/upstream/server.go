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
	lease            string // its path: see leasePath
	auth             *authBreaker
	nodeAvailability *nodeAvailability
	conns            *liveness.Conns

	transports atomic.Pointer[transports]
}

// newServer returns an apiserver that counts as up, and as one that takes the node's
// credentials. changed hears of each change of the one, and forNode of each change of
// both together; they must not call back.
func newServer(address *url.URL, node string, limits Limits, log *slog.Logger, m *Metrics, changed, forNode func(up bool, at time.Time)) *server {
	log = log.With("apiserver", address.Host)
	up, last := m.serverUp.WithLabelValues(address.Host), m.lastChange.WithLabelValues(address.Host)
	s := &server{
		address: address, log: log, limits: limits, checks: newCheckTrigger(limits), lease: leasePath(node),
		nodeAvailability: &nodeAvailability{onChange: forNode, up: true, authorized: true},
	}
	s.conns = liveness.NewConns(s, limits.timeouts(), log)
	s.health = newHealth(log, func(isUp bool, at time.Time) {
		setGauges(up, last, isUp, at)
		changed(isUp, at)
		s.nodeAvailability.setUp(isUp, at)
	})
	s.auth = newAuthBreaker(log, m.refused.WithLabelValues(address.Host), s.nodeAvailability.setAuthorized)
	setGauges(up, last, true, s.health.since)
	return s
}

// roundTrip sends a client's request to this server, and draws conclusions from
// what becomes of it. An error before the request got a connection is a
// *dialError.
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
		err = asDialError(err) // an HTTP proxy on the way may have refused, too
		if req.Context().Err() == nil && !liveness.IsUnresponsive(err) {
			s.ConnectFailed(err)
		}
	default:
		s.handleFailure(req, err, began)
	}
	return nil, err
}

// send sends req to this server and draws no conclusions.
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
		old.closeIdle(false)
	}
}

// Down returns why the apiserver cannot be reached, or nil.
func (s *server) Down() error { return s.health.down() }

// Unresponsive notes that the apiserver cannot be reached since the path to it is silent.
// When that is new, whatever is under way on it is failed at once. It is also new of
// an apiserver that only refused connections, or requests, until now.
func (s *server) Unresponsive(cause error) {
	was := s.health.down()
	s.health.failed(time.Now(), cause)
	if !liveness.IsUnresponsive(was) {
		s.conns.CloseAll(cause)
	}
}
