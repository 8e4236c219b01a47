package repeat

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/pause"
	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// After is the age from which an answer is asked for again. A node with 30 pods has some 30
	// tokens in use, and so asks three times a minute: a thousand nodes, 50 times a second.
	After = 10 * time.Minute
	// Within is the age at which it is forgotten. With two questions in each Pause, 300 tokens
	// and 300 reviews are asked for within it: more than a kubelet has by default (110 pods).
	Within = 30 * time.Minute
	// Pause is the mean time between two turns while something waits. It bounds a node's
	// questions to 20 a minute, also when the cloud is back and all wait.
	Pause = 6 * time.Second
	// RightsPause is Pause for what users may read, of which a node has more: it asks at most 40 times a
	// minute, for 400 rights within After, and for 800 until one is forgotten where a question takes no time. Most are
	// never asked for: who lists or watches again has them confirmed.
	RightsPause = 1500 * time.Millisecond
	// Idle is the mean time between two turns while nothing waits.
	Idle = time.Minute
	// Again is after how long a right that was refused is asked for once more: only the second refusal counts. An
	// apiserver that has just started refuses for a moment, as one does while a RoleBinding is being replaced.
	Again = time.Minute
)

// Confirm asks the apiservers again, until ctx ends: whose the known tokens are, which reviews of the node were allowed, and what
// users may read. It must be called when an apiserver has answered the node: before, a hub that has just started cannot
// know whether the cloud is there. quota.Turns says what is asked for, and what is forgotten. It is for one
// goroutine at a time.
func (a *Answers) Confirm(ctx context.Context) {
	since := quota.Turns{After: After, Within: Within, Since: time.Now()}
	var all sync.WaitGroup
	all.Go(func() {
		takeTurns(ctx, Pause, func() bool {
			ofToken := a.opts.Users.Confirm(ctx, since)
			ofReview := a.reviews.confirm(ctx, since)
			return ofToken || ofReview
		})
	})
	all.Go(func() { takeTurns(ctx, RightsPause, func() bool { return a.rights.turn(ctx, since) }) })
	all.Wait()
}

// takeTurns calls turn again and again until ctx ends, after a pause while it returns true: something was asked for.
func takeTurns(ctx context.Context, between time.Duration, turn func() bool) {
	for wait := Idle; pause.Sleep(ctx, wait/2+pause.Jitter(wait)); {
		wait = Idle
		if turn() {
			wait = between
		}
	}
}

// post posts a review with the credentials of ctx and of an Authorization header, which may be empty.
func (a *Answers) post(ctx context.Context, of schema.GroupVersionResource, authorization, contentType string, body []byte) (code int, answer []byte, err error) {
	const timeout = 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return identity.Post(ctx, a.opts.Upstream, of, authorization, contentType, body)
}

// confirm asks one question of the node again, and forgets the stored answer if the new one is no. It reports whether there
// was one to ask for.
//
// The answer is good as long as before: its TTL begins when the node itself asks.
func (p *reviews) confirm(ctx context.Context, turns quota.Turns) bool {
	key, q := p.next(turns)
	if q == nil {
		return false
	}
	answered, err := p.ask(ctx, q)
	if err != nil {
		return true // it is asked again later
	}
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	if e := p.entries[key]; e != nil {
		_ = p.keepLocked(key, answered, *e) // without it the answer stands
	}
	return true
}

// next returns the question to ask now, or nil, and forgets the answers that are due for it.
func (p *reviews) next(turns quota.Turns) (string, *question) {
	p.answers.mu.Lock()
	defer p.answers.mu.Unlock()
	all := make([]quota.Asked[string], 0, len(p.entries))
	for key, e := range p.entries {
		all = append(all, quota.Asked[string]{Key: key, User: e.User, Last: e.asked, Wanted: e.question != nil})
	}
	now := time.Now()
	key, ok, forget := quota.Next(turns, all, now)
	p.delete(forget...)
	if !ok {
		return "", nil
	}
	p.entries[key].asked = now
	return key, p.entries[key].question
}

// ask posts a question as the node.
func (p *reviews) ask(ctx context.Context, q *question) (*review, error) {
	code, body, err := p.answers.post(p.answers.opts.AsNode(ctx), q.of, "", q.contentType, q.body)
	if err != nil {
		return nil, err
	}
	if code != http.StatusCreated {
		return nil, fmt.Errorf("post a review of %s again: the apiserver answered %d", q.of.Resource, code)
	}
	return readReview(q.of, body, "application/json")
}
