package repeat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/edgehub-io/edgehub/cache/identity"
	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Options of Answers. All but TTL and Grace are required.
type Options struct {
	// Upstream sends requests to the apiservers, and AsNode makes them carry the node's credentials.
	Upstream http.RoundTripper
	AsNode   func(context.Context) context.Context
	// Users learns the users of issued tokens.
	Users *identity.Tokens
	Views *view.Views
	// TTL is how long the answer to a review is repeated. With 0 none is stored, and every question is answered
	// with no.
	TTL time.Duration
	// Grace is how long after its expiry a token is still its user's; 0 is the whole outage. See identity.Options.
	Grace time.Duration
	// Denial returns why an unknown review is answered with no.
	Denial func() string
	Logger *slog.Logger
}

// Answers are the last answers of apiservers.
type Answers struct {
	opts     Options
	policies map[string]policy // by their names on disk
	tokens   *tokens           // one of them
	reviews  *reviews          // another one
	rights   rights

	mu       sync.Mutex // guards what follows, and the entries of all policies
	table    *wal.Table
	clockKey string // of a record with the last known time of the clock; it depends on the table's salt
	clock    clock
	marked   time.Time // the clock, as it can be found on disk
}

// policy determines for one kind of question what is kept of the answer, for how long, and what is
// answered offline.
type policy interface {
	wants(r *Request) bool
	keep(r *Request, res *Response) error
	answer(r *Request) (*Response, error)
	common() *kept
}

// Request is what a user asks.
type Request struct {
	HTTP *http.Request
	Info *request.RequestInfo
	User string                 // user key
	Body func() ([]byte, error) // returns that of a POST, which is the caller's
}

// Response is an answer.
type Response struct {
	Code   int
	Header http.Header
	Body   []byte // not compressed; nobody may change it
}

// New returns empty Answers; Load loads the stored ones.
func New(o Options) *Answers {
	a := &Answers{opts: o}
	a.rights.answers = a
	a.tokens, a.reviews = newTokens(a), newReviews(a)
	a.policies = map[string]policy{}
	for _, p := range []policy{newPaths(a), a.tokens, a.reviews} {
		a.policies[p.common().name] = p
	}
	return a
}

// Load reads the answers in a table. It is called again when its file was opened late. If that has brought another
// salt, the answers since the start cannot be found any more, and are forgotten: a file is read only if nothing was
// listed until then, so they are few, and their clients have just started. They ask again.
func (a *Answers) Load(t *wal.Table) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if salted := t.Key("clock"); salted != a.clockKey {
		a.clockKey = salted
		for _, p := range a.policies {
			t.Delete(slices.Collect(maps.Keys(p.common().entries))...)
			clear(p.common().entries)
		}
	}
	a.table, a.marked = t, time.Time{}
	if err := t.Load(a.load); err != nil {
		return fmt.Errorf("load the last answers of the apiservers: %w", err)
	}
	a.clock.notBefore(a.marked)
	for _, p := range a.policies {
		p.common().evict()
	}
	a.tokens.recall()
	return nil
}

// load takes a value of the table.
func (a *Answers) load(key string, value []byte) error {
	r, _, err := parse(value)
	if err != nil {
		return err
	}
	if used := r.used(); used.After(a.marked) {
		a.marked = used
	}
	if key == a.clockKey {
		return nil
	}
	p := a.policies[r.Policy]
	if p == nil {
		return errPolicy
	}
	if entries := p.common().entries; entries[key] == nil { // memory's has the question, too
		entries[key] = &entry{record: r, size: int64(len(value))}
	}
	return nil
}

// mark stores the time, with a precision, so that answers do not last longer after a restart with a clock that was set
// back.
func (a *Answers) mark(precision time.Duration) {
	now := a.clock.now()
	if now.Sub(a.marked) < precision {
		return
	}
	a.marked = now
	a.table.Put(a.clockKey, (&record{Used: now.UnixMicro()}).encode(nil))
}

var errPolicy = errors.New("no policy has such answers")

// Wants reports whether the answers to a request are repeated offline.
func (a *Answers) Wants(r *Request) bool { return a.policyOf(r) != nil }

func (a *Answers) policyOf(r *Request) policy {
	for _, p := range a.policies {
		if p.wants(r) {
			return p
		}
	}
	return nil
}

// Keep stores an apiserver's answer to a request that Answers wants. Of a success it needs the whole
// body. It keeps no reference to its arguments. After an error the answer cannot be repeated.
func (a *Answers) Keep(r *Request, res *Response) error { return a.policyOf(r).keep(r, res) }

// Answer answers a request that Answers wants, without an apiserver. The response is the caller's, but for its body.
func (a *Answers) Answer(r *Request) (*Response, error) { return a.policyOf(r).answer(r) }
