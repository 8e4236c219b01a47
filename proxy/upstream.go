package proxy

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Balance is the order in which apiservers are tried.
type Balance string

const (
	// RoundRobin spreads requests over all apiservers.
	RoundRobin Balance = "rr"
	// Priority keeps to the first apiserver that can be reached.
	Priority Balance = "priority"
)

// Upstream is the http.RoundTripper to the apiservers.
//
// Its requests carry a path and a query; Upstream puts in the address of the
// apiserver and, for requests of the Node identity, the node's credentials.
type Upstream struct {
	servers []*server
	balance Balance
	next    atomic.Uint64 // of RoundRobin
}

// NewUpstream returns an Upstream over the apiservers at these https URLs, of
// which there is at least one. It opens no connection.
func NewUpstream(servers []*url.URL, balance Balance, creds *Credentials, log *slog.Logger, m *Metrics) (*Upstream, error) {
	if len(servers) == 0 {
		return nil, errors.New("no apiserver is named")
	}
	u := &Upstream{balance: balance}
	for _, address := range servers {
		if address.Scheme != "https" || address.Host == "" {
			return nil, fmt.Errorf("apiserver %q: its address has to be https://HOST:PORT", address)
		}
		u.servers = append(u.servers, newServer(address, log, m))
	}
	u.SetCredentials(creds)
	return u, nil
}

// SetCredentials makes requests from now on use creds, on new connections.
// Requests under way end as they began.
func (u *Upstream) SetCredentials(creds *Credentials) {
	for _, s := range u.servers {
		s.setCredentials(creds)
	}
}

// Close drops idle connections. Requests under way are not touched, and later
// ones open new connections.
func (u *Upstream) Close() {
	for _, s := range u.servers {
		s.closeIdle()
	}
}

// RoundTrip sends req to the first apiserver that takes it. Its error is
// *UnreachableError, unless the caller of req went away first or broke off its
// body.
//
// It leaves closing req.Body to its caller, since a transport may still send the
// body when the answer has come, and an apiserver that cannot be reached must
// not cost the next one the body.
func (u *Upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	failure := &UnreachableError{}
	for _, s := range u.order(time.Now()) {
		attempt, err := rewound(req, len(failure.Attempts))
		if err != nil {
			failure.Delivered = true
			break
		}
		res, err := s.roundTrip(attempt)
		if err == nil {
			return res, nil
		}
		if req.Context().Err() != nil || errors.Is(err, errClientBody) {
			return nil, err
		}
		failure.Attempts = append(failure.Attempts, fmt.Errorf("%s: %w", s.address.Host, err))
		if !undelivered(err) && !repeatable(req) {
			failure.Delivered = true
			break
		}
	}
	return nil, failure
}

// order returns all servers, those that are worth trying first.
func (u *Upstream) order(now time.Time) []*server {
	first := 0
	if u.balance == RoundRobin && len(u.servers) > 1 {
		first = int(u.next.Add(1) % uint64(len(u.servers)))
	}
	var up, down []*server
	for i := range u.servers {
		s := u.servers[(first+i)%len(u.servers)]
		if s.eligible(now) {
			up = append(up, s)
		} else {
			down = append(down, s)
		}
	}
	return append(up, down...)
}

// rewound returns a request that sends req's body from its beginning. Before
// attempt 0 nothing was read; later ones are made only where nothing was sent,
// or where the body can be had again.
func rewound(req *http.Request, attempt int) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	out := *req
	if attempt > 0 && req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		out.Body = body
		return &out, nil
	}
	out.Body = sentBody{req.Body}
	return &out, nil
}

// repeatable reports whether sending req twice is the same as sending it once.
func repeatable(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return req.Body == nil || req.Body == http.NoBody
	}
	return false
}

// UnreachableError is returned when no apiserver answered.
type UnreachableError struct {
	// Attempts has an error for each apiserver that was tried.
	Attempts []error
	// Delivered is true where an apiserver may have carried the request out all
	// the same: the connection broke after the request was sent.
	Delivered bool
}

func (e *UnreachableError) Error() string {
	words := make([]string, len(e.Attempts))
	for i, err := range e.Attempts {
		words[i] = err.Error()
	}
	return strings.Join(words, "; ")
}

// Unwrap returns the error of each attempt.
func (e *UnreachableError) Unwrap() []error { return e.Attempts }
