package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// maxReviews is how many tokens are reviewed at once. Pods that start at the same time
	// wait in the hub, instead of overloading an apiserver.
	maxReviews = 8
	// maxWaiting is how many tokens may wait for their review: several times as many as 250
	// pods that start together need.
	maxWaiting = 1024
	// waitTimeout bounds the time in the queue, reviewTimeout the review itself. Together
	// they bound the delay of the first answer to a new token.
	waitTimeout   = 10 * time.Second
	reviewTimeout = 5 * time.Second
	// retryAfter is how long a token is not reviewed again after a review failed, so that
	// its requests do not cost a review each.
	retryAfter = 10 * time.Second
	// confirmEvery is the shortest interval between reviews that confirm a 401 to a known
	// token: otherwise a client that provokes 401s at a kubelet would cost a review each time.
	confirmEvery = time.Second
)

var (
	// errFailed is returned for a token whose last review named no user.
	errFailed = errors.New("its last review named no user")
	// errStopping is returned while the hub stops.
	errStopping = errors.New("the hub is stopping")
	// errLeft ends a queued review for which no request waits any more.
	errLeft = errors.New("nobody waits for it any more")
	// errWaited is returned for a review that was queued for waitTimeout.
	errWaited = errors.New("too many tokens are being reviewed")
)

// call is a review that is running or queued. All requests with the token share it.
type call struct {
	done chan struct{} // closed when key and err are set
	key  string        // user key
	err  error

	known   string          // user key, if the token is known already
	waiting context.Context // ends the time in the queue
	leave   context.CancelCauseFunc

	// Guarded by Tokens.mu:
	waiters int  // requests that wait for the result
	begun   bool // it has left the queue
}

// Identify returns the key of the token's user. It reviews the token if that is unknown, or
// was reviewed too long ago. Call it when an apiserver has answered a request with this
// token, before the answer is cached. After an error nothing of the answer may be cached.
// Errors never contain the token.
func (t *Tokens) Identify(ctx context.Context, token *Token) (string, error) {
	now := time.Now()
	t.mu.Lock()
	if r := t.tokens[token.hash]; r != nil && now.Sub(r.reviewed).Abs() < reviewEvery {
		t.mu.Unlock()
		return r.key, nil
	}
	if at, ok := t.failed[token.hash]; ok && now.Sub(at).Abs() < retryAfter {
		t.mu.Unlock()
		return "", errFailed
	}
	c, isNew := t.callLocked(token)
	t.mu.Unlock()
	return t.await(ctx, c, isNew, token)
}

// Unauthorized must be called after a 401 to a request with this token. It forgets the token
// if a review confirms that apiservers refuse it.
func (t *Tokens) Unauthorized(ctx context.Context, token *Token) {
	now := time.Now()
	t.mu.Lock()
	r := t.tokens[token.hash]
	if r == nil || now.Sub(r.confirmed).Abs() < confirmEvery {
		t.mu.Unlock()
		return
	}
	r.confirmed = now
	c, isNew := t.callLocked(token)
	t.mu.Unlock()
	_, _ = t.await(ctx, c, isNew, token) // the review itself forgets the token
}

// callLocked returns the running or queued review of a token, or else a new one. The caller
// must pass it to await.
func (t *Tokens) callLocked(token *Token) (c *call, isNew bool) {
	c = t.calls[token.hash]
	if c == nil {
		c, isNew = &call{done: make(chan struct{})}, true
		c.waiting, c.leave = context.WithCancelCause(context.Background())
		if r := t.tokens[token.hash]; r != nil {
			c.known = r.key
		}
		t.calls[token.hash] = c
	}
	c.waiters++
	return c, isNew
}

// await returns the result of a review, which it starts if it is new.
func (t *Tokens) await(ctx context.Context, c *call, isNew bool, token *Token) (string, error) {
	if isNew {
		path := t.path(ctx, c, token)
		if !t.opts.Background(func(ctx context.Context) { t.run(ctx, c, token, path) }) {
			t.finish(c, token, "", errStopping)
		}
	}
	select {
	case <-c.done:
		return c.key, c.err
	case <-ctx.Done():
		t.left(c, token)
		return "", context.Cause(ctx)
	}
}

// path returns the review's place in the fair queue. Known tokens have a flow of their own,
// so that a flood of new ones does not delay them.
//
// The user of a new token is not known yet, and its claims may be forged. So peers are the
// first level of fairness; see Options.Peer. If many clients share an address, the claims
// are the second: forged ones delay only clients of the same address.
func (t *Tokens) path(ctx context.Context, c *call, token *Token) []string {
	if c.known != "" {
		return []string{"known", quota.Tenant(c.known), c.known}
	}
	claimed := User{Name: claimsOf(token.secret).Subject}
	return []string{"new", t.opts.Peer(ctx), quota.Tenant(claimed.Key())}
}

// left is called when a request no longer waits. A queued review without waiters leaves the
// queue; one that has begun goes on, for the next request.
func (t *Tokens) left(c *call, token *Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.waiters--; c.waiters == 0 && !c.begun {
		c.leave(errLeft)
		t.endLocked(c, token)
	}
}

// endLocked removes a review, so that the next request starts another one.
func (t *Tokens) endLocked(c *call, token *Token) {
	if t.calls[token.hash] == c {
		delete(t.calls, token.hash)
	}
}

// run reviews a token when it reaches the head of the queue, and records the result.
func (t *Tokens) run(ctx context.Context, c *call, token *Token, path []string) {
	if err := t.awaitTurn(ctx, c, path); err != nil {
		t.finish(c, token, "", fmt.Errorf("wait to review the token: %w", err))
		return
	}
	defer t.reviews.Release()
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	user, err := t.review(ctx, token.secret)
	if err != nil {
		t.opts.Logger.Debug("a caller's bearer token could not be reviewed; what it reads is not kept for now", "err", err)
		if errors.Is(err, errRefused) || errors.Is(err, errNobody) {
			t.refused(token)
		}
		t.fail(token.hash)
		t.finish(c, token, "", fmt.Errorf("review the token: %w", err))
		return
	}
	t.finish(c, token, t.learn(token.secret, user), nil)
}

// awaitTurn waits in the queue until the review begins. Unless it fails, the caller must call
// reviews.Release. Its error is quota.ErrFull, or the reason why the wait ended.
func (t *Tokens) awaitTurn(ctx context.Context, c *call, path []string) error {
	defer context.AfterFunc(ctx, func() { c.leave(errStopping) })()
	waiting, cancel := context.WithTimeoutCause(c.waiting, waitTimeout, errWaited)
	defer cancel()
	if err := t.reviews.Acquire(waiting, path...); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.begun = c.waiters > 0; !c.begun {
		t.reviews.Release()
		return errLeft
	}
	return nil
}

// finish sets the result of a review.
func (t *Tokens) finish(c *call, token *Token, key string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.key, c.err = key, err
	t.endLocked(c, token)
	c.leave(nil)
	close(c.done)
}

// fail records that a token must not be reviewed again for a while. If there are too many
// such tokens, it drops any of them, which costs one more review at most.
func (t *Tokens) fail(h string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other := range t.failed {
		if len(t.failed) < maxTokens {
			break
		}
		delete(t.failed, other)
	}
	t.failed[h] = time.Now()
}
