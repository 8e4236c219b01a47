package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"

	wal "github.com/edgehub-io/edgehub/cache/log"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiserver reviews tokens.
type apiserver struct {
	t *testing.T

	mu       sync.Mutex
	users    map[string]authenticationv1.UserInfo
	selfCode int   // of SelfSubjectReviews, in place of 201
	err      error // of all requests
	hold     chan struct{}
	takes    time.Duration // a review
	asked    []string      // "self" or "node"
}

type asNode struct{}

// peerKey is the context's key of the other end of a connection.
type peerKey struct{}

func from(ctx context.Context, peer string) context.Context {
	return context.WithValue(ctx, peerKey{}, peer)
}

func newAPIServer(t *testing.T, tokens ...string) *apiserver {
	a := &apiserver{t: t, users: map[string]authenticationv1.UserInfo{}}
	for _, token := range tokens {
		a.users[token] = authenticationv1.UserInfo{Username: "user-of-" + token, UID: "1"}
	}
	return a
}

func (a *apiserver) RoundTrip(r *http.Request) (*http.Response, error) {
	if a.hold != nil {
		select {
		case <-a.hold:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	time.Sleep(a.takes)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	switch {
	case r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json":
		a.t.Errorf("a review is a %s of %s", r.Method, r.Header.Get("Content-Type"))
	case strings.HasSuffix(r.URL.Path, "/authentication.k8s.io/v1/selfsubjectreviews"):
		a.asked = append(a.asked, "self")
		return a.reviewSelf(r), nil
	case strings.HasSuffix(r.URL.Path, "/authentication.k8s.io/v1/tokenreviews"):
		a.asked = append(a.asked, "node")
		return a.reviewToken(r), nil
	}
	return answer(http.StatusNotFound, nil), nil
}

func (a *apiserver) reviewSelf(r *http.Request) *http.Response {
	if r.Context().Value(asNode{}) != nil || len(r.Header.Values("Authorization")) != 1 {
		a.t.Errorf("a SelfSubjectReview has other credentials than the token: %v", r.Header)
	}
	user, ok := a.users[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	switch {
	case !ok:
		return answer(http.StatusUnauthorized, nil)
	case a.selfCode != 0:
		return answer(a.selfCode, nil)
	}
	return answer(http.StatusCreated, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: user}})
}

func (a *apiserver) reviewToken(r *http.Request) *http.Response {
	if r.Context().Value(asNode{}) == nil || r.Header.Get("Authorization") != "" {
		a.t.Errorf("a TokenReview is not the node's: %v", r.Header)
	}
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || len(review.Spec.Audiences) > 0 {
		a.t.Errorf("a TokenReview: %v, audiences %v", err, review.Spec.Audiences)
	}
	user, ok := a.users[review.Spec.Token]
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, User: user}
	if !ok {
		review.Status.Error = "invalid bearer token " + review.Spec.Token
	}
	return answer(http.StatusCreated, &review)
}

func answer(code int, body any) *http.Response {
	text, _ := json.Marshal(body)
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(string(text)))}
}

// count returns the number of reviews.
func (a *apiserver) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.asked)
}

func (a *apiserver) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// memory returns a table of a log that is never opened. It outlives what is opened on it, as a disk does.
func memory(t *testing.T) *wal.Table {
	t.Helper()
	return newLog(t, "").Table("tokens")
}

// noViews is a State of a log that has only tables of its own.
type noViews struct{}

func (noViews) Tables() []string       { return nil }
func (noViews) Rows(string) []wal.Row  { return nil }
func (noViews) Apply(wal.Change)       {}
func (noViews) Lost(error)             {}
func (noViews) GivenUp(string)         {}
func (noViews) Damaged(wal.Sum, error) {}
func (noViews) IsEmpty() bool          { return true }

func newLog(t *testing.T, dir string) *wal.Log {
	t.Helper()
	log, err := wal.New(dir, wal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// openLog opens a log, of which tokens may have been used before.
func openLog(t *testing.T, log *wal.Log, tokens *Tokens) {
	t.Helper()
	if err := log.Open(noViews{}); err != nil {
		t.Fatal(err)
	}
	if tokens != nil {
		if err := tokens.Load(); err != nil {
			t.Fatal(err)
		}
	}
}

// closeLog ends a process.
func closeLog(t *testing.T, log *wal.Log) {
	t.Helper()
	if err := errors.Join(log.Flush(), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// openIn returns the tokens in a log.
func openIn(t *testing.T, a *apiserver, log *wal.Log) *Tokens {
	t.Helper()
	return open(t, a, log.Table("tokens"))
}

// contents returns all that is in a table.
func contents(t *testing.T, disk *wal.Table) string {
	t.Helper()
	var all strings.Builder
	if err := disk.Load(func(key string, value []byte) error {
		fmt.Fprintf(&all, "%s=%s\n", key, value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// open returns the tokens in a table, with the clock of the synctest bubble.
func open(t *testing.T, a *apiserver, disk *wal.Table, more ...func(*Options)) *Tokens {
	t.Helper()
	o := Options{
		Upstream: a,
		AsNode:   func(ctx context.Context) context.Context { return context.WithValue(ctx, asNode{}, true) },
		Peer: func(ctx context.Context) string {
			peer, _ := ctx.Value(peerKey{}).(string)
			return peer
		},
		Background: func(fn func(context.Context)) bool { go fn(t.Context()); return true },
		Table:      disk, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, m := range more {
		m(&o)
	}
	tokens := New(o)
	if err := tokens.Load(); err != nil {
		t.Fatal(err)
	}
	return tokens
}

// bearer returns the token of a request.
func (t *Tokens) bearer(secret string) *Token {
	return t.Token(http.Header{"Authorization": {"Bearer " + secret}})
}

// identify returns the key of a token's user, or the error.
func (t *Tokens) identify(tb *testing.T, secret string) string {
	tb.Helper()
	key, err := t.Identify(tb.Context(), t.bearer(secret))
	if err != nil {
		if len(secret) > 2 && strings.Contains(err.Error(), secret) {
			tb.Errorf("an error tells the token: %v", err)
		}
		return err.Error()
	}
	return key
}

// offline returns the user of a token while the cloud is away, or "".
func (t *Tokens) offline(secret string) string {
	token := t.bearer(secret)
	user := t.User(token)
	if errors.Is(t.Offline(token, user), ErrUnknown) != (user == "") {
		return fmt.Sprintf("two answers: %q, %v", user, t.Offline(token, user))
	}
	return user
}
