package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/edgehub-io/edgehub/proxy/authn"
	"github.com/edgehub-io/edgehub/proxy/upstream/liveness"
)

// Balance is the order in which apiservers are tried.
type Balance string

const (
	// RoundRobin spreads requests over all apiservers.
	RoundRobin Balance = "rr"
	// Priority uses the first apiserver that can be reached.
	Priority Balance = "priority"
)

// Upstream is the http.RoundTripper to the apiservers.
//
// It sets the apiserver's address in each request and, for requests of the Node identity, the
// node's credentials.
type Upstream struct {
	servers      []*server
	balance      Balance
	next         atomic.Uint64 // of RoundRobin
	outageStart  outageStart
	responded    atomic.Bool      // an apiserver has sent any answer since the start
	availability [2]*availability // by Identity: for callers with credentials of their own, and for the node
}

// New returns an Upstream for the apiservers at these https URLs, at least one, and the node
// of this name. It opens no connection.
func New(servers []*url.URL, node string, balance Balance, creds *Credentials, limits Limits, log *slog.Logger, m *Metrics) (*Upstream, error) {
	if len(servers) == 0 {
		return nil, errors.New("no apiserver is named")
	}
	u := &Upstream{balance: balance, outageStart: outageStart{answered: make(chan struct{})}}
	for id := range u.availability {
		u.availability[id] = newAvailability(len(servers), time.Now())
	}
	var peers []*liveness.Conns
	for i, address := range servers {
		if address.Scheme != "https" || address.Host == "" {
			return nil, fmt.Errorf("apiserver %q: its address has to be https://HOST:PORT", address)
		}
		s := newServer(address, node, limits.withDefaults(), log, m)
		s.availability, s.index, s.markAnswered, s.responded = u.availability, i, u.outageStart.markAnswered, &u.responded
		u.servers = append(u.servers, s)
		peers = append(peers, s.conns)
	}
	for _, s := range u.servers {
		s.conns.Peers = peers
	}
	u.SetCredentials(creds)
	return u, nil
}

// SetCredentials makes requests from now on use creds, on new connections.
// Requests in flight keep their connections. It closes the breakers of apiservers that refused
// the old credentials.
func (u *Upstream) SetCredentials(creds *Credentials) {
	for _, s := range u.servers {
		s.setCredentials(creds)
	}
}

// Bytes returns how many bytes were sent to all apiservers and received from them so far: of
// connections, TLS included.
func (u *Upstream) Bytes() (sent, received int64) {
	for _, s := range u.servers {
		one, other := s.conns.Bytes()
		sent, received = sent+one, received+other
	}
	return sent, received
}

// Close closes idle connections, and ends pings. Requests in flight continue, but the loss of
// their apiserver is no longer noticed.
func (u *Upstream) Close() {
	for _, s := range u.servers {
		for _, t := range s.transports.Load().all {
			t.Close()
		}
	}
}

// Run probes and checks apiservers until ctx ends: without it, those that are down stay down.
// It returns nil.
func (u *Upstream) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, s := range u.servers {
		g.Go(func() error { return s.run(ctx) })
	}
	return g.Wait()
}

// RoundTrip sends req to the first apiserver that accepts it. Its error is
// *UnreachableError if none could be reached, and another one if an apiserver aborted this
// request, or req's caller canceled it or aborted its body. An apiserver that refuses the
// node's credentials counts as unreachable for the node: see RefusedError.
//
// It does not close req.Body: a transport may still send the body when the response has
// arrived, and the next apiserver needs it if one cannot be reached.
func (u *Upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	failure := &UnreachableError{}
	sent := 0
	note := func(s *server, err error) {
		failure.Attempts = append(failure.Attempts, fmt.Errorf("%s: %w", s.address.Host, err))
	}
	id := authn.IdentityOf(req.Context())
	for _, s := range u.order() {
		if err := s.unavailableFor(id); err != nil {
			note(s, err)
			continue
		}
		// A broken connection does not prove that the server is lost, and credentials may have
		// been replaced: the second attempt opens a new connection, or uses the new ones.
		for range 2 {
			attempt, err := rewindBody(req, sent)
			if err != nil {
				return nil, err
			}
			sent++
			res, err := s.roundTrip(attempt)
			if err == nil {
				return res, nil
			}
			what := classify(err)
			if what == aborted || req.Context().Err() != nil {
				return nil, err
			}
			note(s, err)
			switch {
			case what == ambiguous && !idempotent(req):
				failure.Delivered = true
				return nil, failure
			case what == bodyLost || what == unauthorized && !replayable(req):
				return nil, failure
			}
			if what == unavailable || s.unavailableFor(id) != nil {
				break
			}
		}
	}
	failure.Since = u.lostSince(id)
	return nil, failure
}

// lostSince is UnreachableError.Since.
func (u *Upstream) lostSince(id authn.Identity) (last time.Time) {
	for _, s := range u.servers {
		since, err := s.unavailableSince(id)
		if err == nil {
			return time.Time{}
		}
		if since.After(last) {
			last = since
		}
	}
	return last
}

// order returns all servers in the order in which they are tried.
func (u *Upstream) order() []*server {
	if u.balance != RoundRobin || len(u.servers) == 1 {
		return u.servers
	}
	first := int(u.next.Add(1) % uint64(len(u.servers)))
	return append(slices.Clone(u.servers[first:]), u.servers[:first]...)
}
