package proxy

import (
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

// server is one apiserver.
type server struct {
	address    *url.URL
	log        *slog.Logger
	limits     Limits
	health     *health
	doubts     *doubts
	lease      string // its path: see leasePath
	acceptance *acceptance
	forNode    *usable
	lines      *lines

	transports atomic.Pointer[transports]
}

// newServer returns an apiserver that counts as up, and as one that takes the node's
// credentials. changed hears of each change of the one, and forNode of each change of
// both together; they must not call back.
func newServer(address *url.URL, node string, limits Limits, log *slog.Logger, m *UpstreamMetrics, changed, forNode func(up bool, at time.Time)) *server {
	log = log.With("apiserver", address.Host)
	up, last := m.serverUp.WithLabelValues(address.Host), m.lastChange.WithLabelValues(address.Host)
	s := &server{
		address: address, log: log, limits: limits, doubts: newDoubts(limits), lease: leasePath(node),
		forNode: &usable{changed: forNode, up: true, taken: true},
	}
	s.lines = newLines(s, limits.timeouts(), log)
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
	old := s.transports.Swap(newTransports(s.lines, creds))
	if creds.Missing != nil {
		s.acceptance.refuse(creds.Missing, func() bool { return false })
	} else {
		s.acceptance.take("the node has other credentials")
	}
	if old != nil {
		old.closeIdle(false)
	}
}

// down returns why the apiserver cannot be reached, or nil.
func (s *server) down() error { return s.health.down() }

// lost notes that the apiserver cannot be reached since the path to it is silent.
// When that is new, whatever is under way on it is failed at once. It is also new of
// an apiserver that only refused connections, or requests, until now.
func (s *server) lost(cause error) {
	was := s.health.down()
	s.health.failed(time.Now(), cause)
	if !isSilent(was) {
		s.lines.drop(cause)
	}
}
