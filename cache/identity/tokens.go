package identity

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/quota"
)

// Options of Tokens. All but Peer, Grace and Refused are required.
type Options struct {
	// Upstream sends requests to the apiservers. A request whose context has no values must
	// be sent with the credentials in its headers only.
	Upstream http.RoundTripper
	// AsNode makes requests carry the node's credentials.
	AsNode func(context.Context) context.Context
	// Peer returns the other end of a request's connection. Reviews are queued fairly by
	// peer, so it must not depend on anything that a client can vary, such as a port. By
	// default all requests have the same peer.
	Peer func(context.Context) string
	// Background runs a function, with a context that ends when the hub stops. It
	// returns false if the hub stops already.
	Background func(func(context.Context)) bool
	// Table is where known tokens are stored, by their salted hashes.
	Table *wal.Table
	// Grace is how long after its expiry a token is accepted while the cloud is away; 0 is
	// the whole outage.
	Grace time.Duration
	// Refused, if it is not nil, is called after a known token was forgotten because apiservers refuse it.
	Refused func(token, userName string)
	// Logger logs failed reviews, without the tokens.
	Logger *slog.Logger
}

const (
	// noteUseEvery is the precision of the stored time of last use: using a token causes a
	// write at most once an hour.
	noteUseEvery = time.Hour
	// reviewEvery is how long a review is valid. A token's user does not change during the
	// token's life, except in an apiserver's static token file, where an administrator may
	// give an old token to a new user.
	reviewEvery = 24 * time.Hour
)

var (
	// ErrUnknown is returned for a token that no apiserver has identified.
	ErrUnknown = errors.New("this bearer token is not known: no apiserver has identified it through this hub")
	// ErrExpired is returned for a token whose grace is over.
	ErrExpired = errors.New("this bearer token has expired, and --offline-token-grace has passed since")
	// ErrReassigned is for callers that send a request again after its token was given to
	// another user.
	ErrReassigned = errors.New("its bearer token belongs to another user now")
)

// Tokens are the bearer tokens whose users are known.
type Tokens struct {
	opts    Options
	reviews *quota.Queue

	mu     sync.Mutex
	salted string             // a hash that tells whether the salt is another one
	tokens map[string]*record // by their hashes, as calls and failed
	byUser map[string]int     // number of tokens by user key
	calls  map[string]*call
	failed map[string]time.Time // when tokens could not be identified; see retryAfter
}

// record is what is known of a token.
type record struct {
	user     User
	key      string // user key
	expires  time.Time
	reviewed time.Time

	// Guarded by Tokens.mu:
	used      int64     // in Unix nanoseconds
	written   int64     // used, as stored
	confirmed time.Time // when a known token was last reviewed, or was to be
	secret    secret    // the zero value after a restart
}

// New returns empty Tokens; Load loads the stored ones.
func New(o Options) *Tokens {
	if o.Peer == nil {
		o.Peer = func(context.Context) string { return "" }
	}
	return &Tokens{
		opts: o, reviews: quota.NewQueue(maxReviews, maxWaiting),
		tokens: map[string]*record{}, byUser: map[string]int{}, calls: map[string]*call{}, failed: map[string]time.Time{},
	}
}

// Token is a bearer token in a request.
type Token struct {
	secret string
	hash   string // by the salt at that time; see Load
}

// Authorization returns the header with the token.
func (t *Token) Authorization() string { return "Bearer " + t.secret }

// String keeps the token out of logs.
func (*Token) String() string { return "a bearer token" }

// Token returns the bearer token of a request, or nil; see Bearer.
func (t *Tokens) Token(h http.Header) *Token {
	secret := Bearer(h)
	if secret == "" {
		return nil
	}
	return &Token{secret, t.hash(secret)}
}

// hash returns the salted hash of a token.
func (t *Tokens) hash(secret string) string { return t.opts.Table.Key(secret) }

// User returns the key of a token's user, or "" if the token is not known.
func (t *Tokens) User(token *Token) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.tokens[token.hash]
	if r == nil {
		return ""
	}
	t.recallLocked(r, token.secret)
	r.used = time.Now().UnixNano()
	if r.used-r.written >= int64(noteUseEvery) {
		r.written = r.used
		t.put(token.hash, r)
	}
	return r.key
}

// Offline returns nil if a token identifies this user while the cloud is away.
func (t *Tokens) Offline(token *Token, user string) error {
	t.mu.Lock()
	r := t.tokens[token.hash]
	t.mu.Unlock()
	switch {
	case r == nil || r.key != user:
		return ErrUnknown
	case isOver(r.expires, t.opts.Grace, time.Now()):
		return ErrExpired
	}
	return nil
}

// Knows reports whether a token of a user is known. Without one, nobody is this user while the
// cloud is away.
func (t *Tokens) Knows(user string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byUser[user] > 0
}

// Expired reports whether the grace of a token that an apiserver has accepted is over, and it
// identifies nobody while the cloud is away; see Options.Grace.
func Expired(token string, grace time.Duration, now time.Time) bool {
	return isOver(expiry(token), grace, now)
}

func isOver(expires time.Time, grace time.Duration, now time.Time) bool {
	return grace > 0 && !expires.IsZero() && now.After(expires.Add(grace))
}

// Issued records a token that an apiserver has just issued to this user.
func (t *Tokens) Issued(secret string, to User) { t.learn(secret, to) }

// learn records the user of a token, and returns the user's key.
func (t *Tokens) learn(token string, user User) string {
	now := time.Now()
	r := &record{
		user: user, key: user.Key(), expires: expiry(token), reviewed: now, secret: secretOf(token),
		used: now.UnixNano(), written: now.UnixNano(),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.hash(token)
	delete(t.failed, h)
	if old := t.tokens[h]; old != nil && old.user == user {
		old.confirmed = now
		if now.Sub(old.reviewed).Abs() < reviewEvery/2 {
			return old.key // it need not be written every few minutes
		}
		r.confirmed = now
		r.used = old.used
	}
	t.setLocked(h, r)
	t.put(h, r)
	t.evictLocked()
	return r.key
}

// refused forgets a token that apiservers refuse.
func (t *Tokens) refused(token *Token) {
	t.mu.Lock()
	h := t.hash(token.secret)
	known := t.tokens[h]
	t.removeLocked(h)
	t.mu.Unlock()
	if known != nil && t.opts.Refused != nil {
		t.opts.Refused(token.secret, known.user.Name)
	}
}

func (t *Tokens) setLocked(h string, r *record) {
	if old := t.tokens[h]; old != nil {
		t.discountLocked(old)
	}
	t.tokens[h] = r
	t.byUser[r.key]++
}

func (t *Tokens) removeLocked(h string) {
	if r := t.tokens[h]; r != nil {
		t.discountLocked(r)
		delete(t.tokens, h)
		t.opts.Table.Delete(h)
	}
}

func (t *Tokens) discountLocked(r *record) {
	if t.byUser[r.key]--; t.byUser[r.key] == 0 {
		delete(t.byUser, r.key)
	}
}
