package repeat

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/edgehub-io/edgehub/cache/confirm"
	"github.com/edgehub-io/edgehub/cache/identity"
)

// ConfirmReview asks one question of the node again, and forgets the stored answer if the new one is no. It also forgets
// the answers that could not be asked for since the cloud came, for long; see package confirm. It reports whether there
// was one to ask for.
//
// The answer is good as long as before: its TTL begins when the node itself asks.
func (a *Answers) ConfirmReview(ctx context.Context, since time.Time) bool {
	p := a.reviews
	key, q := p.next(since)
	if q == nil {
		return false
	}
	answered, err := p.ask(ctx, q)
	if err != nil {
		return true // it is asked again later
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := p.entries[key]; e != nil {
		_ = p.keepLocked(key, answered, *e) // without it the answer stands
	}
	return true
}

// next returns the question to ask now, or nil, and forgets the answers that are due for it.
func (p *reviews) next(since time.Time) (string, *question) {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	items := make([]confirm.Item[string], 0, len(p.entries))
	for key, e := range p.entries {
		items = append(items, confirm.Item[string]{Key: key, User: e.User, Asked: e.asked, Wanted: e.question != nil})
	}
	now := time.Now()
	key, ok, forget := confirm.Next(items, since, now)
	p.delete(forget...)
	if !ok {
		return "", nil
	}
	p.entries[key].asked = now
	return key, p.entries[key].question
}

// ask posts a question as the node.
func (p *reviews) ask(ctx context.Context, q *question) (*review, error) {
	code, body, contentType, err := p.all.post(p.all.opts.AsNode(ctx), q, "")
	if err != nil {
		return nil, err
	}
	if code != http.StatusCreated {
		return nil, fmt.Errorf("post a review of %s again: the apiserver answered %d", q.of.Resource, code)
	}
	return readReview(q.of, body, contentType)
}

// post posts a review with the credentials of ctx and of an Authorization header, which may be empty.
func (a *Answers) post(ctx context.Context, q *question, authorization string) (code int, answer []byte, contentType string, err error) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return identity.Post(ctx, a.opts.Upstream, q.of, authorization, q.contentType, q.body)
}
