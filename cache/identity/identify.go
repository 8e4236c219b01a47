package identity

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// maxReviews is how many tokens are reviewed at once. Pods that all start at the
	// same time wait for each other rather than for a flooded apiserver.
	maxReviews = 8
	// reviewTimeout bounds a review, and the wait for its turn. So long the answer to
	// the first request with a token may be held back.
	reviewTimeout = 5 * time.Second
	// retryAfter is how long a token is not reviewed again after a review that named
	// no user, so that its requests do not cost a review each.
	retryAfter = 10 * time.Second
	// maxFailed bounds how many such tokens are remembered.
	maxFailed = 1024
	// confirmEvery is how often at most a 401 to a known token is confirmed: who can
	// provoke one at a kubelet could have each cost a review.
	confirmEvery = time.Second
)

// errFailed is returned for a token whose last review named no user.
var errFailed = errors.New("its last review named no user")

// errStopping is returned while the hub stops.
var errStopping = errors.New("the hub is stopping")

// flight is a review that is under way.
type flight struct {
	done chan struct{} // closed when the rest is set
	key  string        // of the user
	err  error
}

// Identify returns the key of the token's user, after a review where the token is
// not known or was reviewed too long ago. It is to be called when an apiserver has
// answered a request with this token, and before the answer is kept. An error says
// that nothing of the answer may be kept, and never contains the token.
func (t *Tokens) Identify(ctx context.Context, token *Token) (string, error) {
	now := t.opts.Now()
	t.mu.Lock()
	if r := t.tokens[token.hash]; r != nil && now.Sub(r.reviewed).Abs() < reviewEvery {
		t.mu.Unlock()
		return r.key, nil
	}
	if at, ok := t.failed[token.hash]; ok && now.Sub(at).Abs() < retryAfter {
		t.mu.Unlock()
		return "", errFailed
	}
	f, begun := t.flightLocked(token)
	t.mu.Unlock()
	return t.await(ctx, f, begun, token)
}

// Unauthorized is to be called when the answer to a request with this token was
// 401. It forgets the token if a review confirms that it is refused.
func (t *Tokens) Unauthorized(ctx context.Context, token *Token) {
	now := t.opts.Now()
	t.mu.Lock()
	r := t.tokens[token.hash]
	if r == nil || now.Sub(r.confirmed).Abs() < confirmEvery {
		t.mu.Unlock()
		return
	}
	r.confirmed = now
	f, begun := t.flightLocked(token)
	t.mu.Unlock()
	_, _ = t.await(ctx, f, begun, token) // whoever reviews does what is to be done
}

// flightLocked returns the review of a token that is under way, or else a new one,
// which the caller has to hand to await.
func (t *Tokens) flightLocked(token *Token) (f *flight, begun bool) {
	if f = t.flights[token.hash]; f != nil {
		return f, true
	}
	f = &flight{done: make(chan struct{})}
	t.flights[token.hash] = f
	return f, false
}

// await returns what a review finds, which it starts unless it has begun.
func (t *Tokens) await(ctx context.Context, f *flight, begun bool, token *Token) (string, error) {
	if !begun && !t.opts.Background(func(ctx context.Context) { t.fly(ctx, f, token) }) {
		t.land(f, token, "", errStopping)
	}
	select {
	case <-f.done:
		return f.key, f.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// fly reviews a token, and notes what comes of it.
func (t *Tokens) fly(ctx context.Context, f *flight, token *Token) {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	user, err := t.reviewInTurn(ctx, token.secret)
	if err != nil {
		t.opts.Logger.Debug("a caller's bearer token could not be reviewed; what it reads is not kept for now", "err", err)
		if errors.Is(err, errRefused) || errors.Is(err, errNobody) {
			t.forget(token.hash)
		}
		t.land(f, token, "", fmt.Errorf("review the token: %w", err))
		return
	}
	t.land(f, token, t.learn(token.hash, token.secret, user), nil)
}

// land ends a review.
func (t *Tokens) land(f *flight, token *Token, key string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.key, f.err = key, err; err != nil {
		t.failLocked(token.hash)
	}
	delete(t.flights, token.hash)
	close(f.done)
}

func (t *Tokens) reviewInTurn(ctx context.Context, secret string) (User, error) {
	select {
	case t.reviews <- struct{}{}:
	case <-ctx.Done():
		return User{}, errors.New("too many tokens are being reviewed")
	}
	defer func() { <-t.reviews }()
	return t.review(ctx, secret)
}

// failLocked notes that a token is not to be reviewed again for a while. Where too
// many are noted, any goes: that costs a review at most.
func (t *Tokens) failLocked(h hash) {
	for other := range t.failed {
		if len(t.failed) < maxFailed {
			break
		}
		delete(t.failed, other)
	}
	t.failed[h] = t.opts.Now()
}
