package identity

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	// maxReviews is how many tokens are reviewed at once. Pods that all start at the
	// same time wait for each other rather than for a flooded apiserver.
	maxReviews = 8
	// maxWaiting is how many tokens wait for their review: those of 250 pods that start
	// together, several times over.
	maxWaiting = 1024
	// waitTimeout bounds the wait for a review's turn, and reviewTimeout the review. So
	// long the answer to the first request with a token may be held back.
	waitTimeout   = 10 * time.Second
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

// errLeft ends a wait for the turn of a review for which nobody waits any more.
var errLeft = errors.New("nobody waits for it any more")

// errWaited is returned where it was not a review's turn for waitTimeout.
var errWaited = errors.New("too many tokens are being reviewed")

// flight is a review that is under way, or waits for its turn.
type flight struct {
	done chan struct{} // closed when key and err are set
	key  string        // of the user
	err  error

	known   string          // the user's key, where the token is known already
	waiting context.Context // ends the wait for its turn
	leave   context.CancelCauseFunc

	// Guarded by Tokens.mu:
	callers int  // that wait for it
	begun   bool // it was its turn
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
	f, isNew := t.flightLocked(token)
	t.mu.Unlock()
	return t.await(ctx, f, isNew, token)
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
	f, isNew := t.flightLocked(token)
	t.mu.Unlock()
	_, _ = t.await(ctx, f, isNew, token) // whoever reviews does what is to be done
}

// flightLocked returns the review of a token that there is, or else a new one. The
// caller has to hand it to await.
func (t *Tokens) flightLocked(token *Token) (f *flight, isNew bool) {
	f = t.flights[token.hash]
	if f == nil {
		f, isNew = &flight{done: make(chan struct{})}, true
		f.waiting, f.leave = context.WithCancelCause(context.Background())
		if r := t.tokens[token.hash]; r != nil {
			f.known = r.key
		}
		t.flights[token.hash] = f
	}
	f.callers++
	return f, isNew
}

// await returns what a review finds, which it starts if it is new.
func (t *Tokens) await(ctx context.Context, f *flight, isNew bool, token *Token) (string, error) {
	if isNew {
		path := t.path(ctx, f, token)
		if !t.opts.Background(func(ctx context.Context) { t.fly(ctx, f, token, path) }) {
			t.land(f, token, "", errStopping)
		}
	}
	select {
	case <-f.done:
		return f.key, f.err
	case <-ctx.Done():
		t.left(f, token)
		return "", context.Cause(ctx)
	}
}

// path names who waits for a review, for package fairqueue. Tokens that are known take
// turns with all others, so that a flood of new ones does not delay them.
//
// The user of a new token is not known yet, and its claims may be forged. So turns are
// taken by peers first; see Options.Peer for how those are distinguished. Where many
// clients share an address, the claims come next: whoever forges them takes turns only
// from clients of that address.
func (t *Tokens) path(ctx context.Context, f *flight, token *Token) []string {
	if f.known != "" {
		return []string{"known", quota.Tenant(f.known), f.known}
	}
	claimed := User{Name: claimsOf(token.secret).Subject}
	return []string{"new", t.opts.Peer(ctx), quota.Tenant(claimed.Key())}
}

// left is called when a caller waits no more. A review that nobody waits for gives up
// its place; one that has begun goes on, for the next request.
func (t *Tokens) left(f *flight, token *Token) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f.callers--; f.callers == 0 && !f.begun {
		f.leave(errLeft)
		t.endLocked(f, token)
	}
}

// endLocked lets the next caller start another review.
func (t *Tokens) endLocked(f *flight, token *Token) {
	if t.flights[token.hash] == f {
		delete(t.flights, token.hash)
	}
}

// fly reviews a token when it is its turn, and notes what comes of it.
func (t *Tokens) fly(ctx context.Context, f *flight, token *Token, path []string) {
	if err := t.awaitTurn(ctx, f, path); err != nil {
		t.land(f, token, "", fmt.Errorf("wait to review the token: %w", err))
		return
	}
	defer t.reviews.Release()
	if !t.begin(f) {
		t.land(f, token, "", errLeft)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	user, err := t.review(ctx, token.secret)
	if err != nil {
		t.opts.Logger.Debug("a caller's bearer token could not be reviewed; what it reads is not kept for now", "err", err)
		if errors.Is(err, errRefused) || errors.Is(err, errNobody) {
			t.forget(token.hash)
		}
		t.fail(token.hash)
		t.land(f, token, "", fmt.Errorf("review the token: %w", err))
		return
	}
	t.land(f, token, t.learn(token.hash, token.secret, user), nil)
}

// awaitTurn waits until it is the turn of a review. Unless it fails, the caller must call
// Release. Its error is fairqueue.ErrFull, or the reason why the wait ended.
func (t *Tokens) awaitTurn(ctx context.Context, f *flight, path []string) error {
	defer context.AfterFunc(ctx, func() { f.leave(errStopping) })()
	waiting, cancel := context.WithTimeoutCause(f.waiting, waitTimeout, errWaited)
	defer cancel()
	return t.reviews.Acquire(waiting, path...)
}

// begin reports whether anybody still waits for a review, which goes on then.
func (t *Tokens) begin(f *flight) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.begun = f.callers > 0
	return f.begun
}

// land ends a review.
func (t *Tokens) land(f *flight, token *Token, key string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.key, f.err = key, err
	t.endLocked(f, token)
	f.leave(nil)
	close(f.done)
}

// fail notes that a token is not to be reviewed again for a while. Where too many are
// noted, any goes: that costs a review at most.
func (t *Tokens) fail(h hash) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other := range t.failed {
		if len(t.failed) < maxFailed {
			break
		}
		delete(t.failed, other)
	}
	t.failed[h] = t.opts.Now()
}
