package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/edgehub-io/edgehub/cache/quota"
)

const (
	reviewTakes = 100 * time.Millisecond
	flooding    = 100 // tokens
)

// claiming returns a token with a subject and a unique ID.
func claiming(subject string, id int) string {
	return jwt(fmt.Sprintf(`{"sub":%q,"jti":"%d"}`, subject, id))
}

// flood makes tokens of a peer wait for their reviews, and returns when all of them do.
func (t *Tokens) flood(ctx context.Context, g *sync.WaitGroup, n int, of func(i int) string) {
	for i := range n {
		g.Go(func() { _, _ = t.Identify(ctx, t.bearer(of(i))) })
	}
	synctest.Wait()
}

func TestAFloodOfNewTokensDoesNotDelayOtherReviews(t *testing.T) {
	const flooder, victim = "system:serviceaccount:flood:a", "system:serviceaccount:victims:a"
	victims := claiming(victim, 0)
	identify := func(peer string) func(context.Context, *Tokens, *apiserver) error {
		return func(ctx context.Context, tokens *Tokens, _ *apiserver) error {
			_, err := tokens.Identify(from(ctx, peer), tokens.bearer(victims))
			return err
		}
	}
	learn := func(t *testing.T, tokens *Tokens) { tokens.identify(t, victims) }
	for name, test := range map[string]struct {
		flood  func(i int) string
		before func(*testing.T, *Tokens)
		ask    func(context.Context, *Tokens, *apiserver) error
	}{
		"a new token of another peer": {
			flood: func(i int) string { return claiming(flooder, i) }, ask: identify("B"),
		},
		"a new token of another peer, though those that flood name its subject": {
			flood: func(i int) string { return claiming(victim, i+1) }, ask: identify("B"),
		},
		"a new token of another peer, though those that flood name many subjects": {
			flood: func(i int) string { return claiming(fmt.Sprint("user", i), i) }, ask: identify("B"),
		},
		"a new token of another namespace by the same peer": {
			flood: func(i int) string { return claiming(fmt.Sprint(flooder, i), i) }, ask: identify("A"),
		},
		"a token that was reviewed long ago, by the same peer": {
			flood:  func(i int) string { return claiming(fmt.Sprint("user", i), i) },
			before: func(t *testing.T, tokens *Tokens) { learn(t, tokens); time.Sleep(reviewEvery) },
			ask:    identify("A"),
		},
		"the review of a known token's 401, by the same peer": {
			flood:  func(i int) string { return claiming(victim, i+1) },
			before: learn,
			ask: func(ctx context.Context, tokens *Tokens, a *apiserver) error {
				before := a.count()
				tokens.Unauthorized(from(ctx, "A"), tokens.bearer(victims))
				if a.count() == before {
					return errors.New("it was not reviewed")
				}
				return nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t)
				a.users[victims] = authenticationv1.UserInfo{Username: victim, UID: "1"}
				for i := range flooding {
					a.users[test.flood(i)] = authenticationv1.UserInfo{Username: flooder, UID: "1"}
				}
				a.takes = reviewTakes
				tokens := open(t, a, memory(t))
				if test.before != nil {
					test.before(t, tokens)
				}
				var g sync.WaitGroup
				tokens.flood(from(t.Context(), "A"), &g, flooding, test.flood)
				began := time.Now()
				if err := test.ask(t.Context(), tokens, a); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took > 2*reviewTakes {
					t.Errorf("it takes %v", took)
				}
				g.Wait()
				for i := range flooding {
					if tokens.offline(test.flood(i)) == "" {
						t.Fatalf("token %d of the flood is not known afterwards", i)
					}
				}
			})
		})
	}
}

// If too many tokens wait, those of the peer with the most are rejected. Their answers are not kept
// for now, and their next requests try again.
func TestIfTooManyTokensWaitTheFloodIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t, "victim", "late")
		a.hold = make(chan struct{})
		tokens := open(t, a, memory(t))
		var g sync.WaitGroup
		flood := func(i int) string { return fmt.Sprint("t", i) }
		tokens.flood(from(t.Context(), "A"), &g, maxReviews+maxWaiting, flood)
		g.Go(func() {
			if _, err := tokens.Identify(from(t.Context(), "B"), tokens.bearer("victim")); err != nil {
				t.Errorf("the victim: %v", err)
			}
		})
		synctest.Wait()
		if _, err := tokens.Identify(from(t.Context(), "A"), tokens.bearer("late")); !errors.Is(err, quota.ErrFull) {
			t.Errorf("one more of the flood: %v", err)
		}
		if n := tokens.reviews.Waiting(); n != maxWaiting {
			t.Errorf("%d wait", n)
		}
		close(a.hold)
		g.Wait()
		if got := tokens.identify(t, "late"); !strings.HasPrefix(got, userPrefix) {
			t.Errorf("it is not reviewed when it comes again: %s", got)
		}
	})
}

// A token without waiting requests must not delay others.
func TestATokenThatNobodyWaitsForIsNotReviewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t, "shared", "left")
		a.hold = make(chan struct{})
		tokens := open(t, a, memory(t))
		var gone, staying sync.WaitGroup
		ctx, leave := context.WithCancel(t.Context())
		tokens.flood(ctx, &gone, maxReviews, func(i int) string { return fmt.Sprint("t", i) })
		tokens.flood(ctx, &gone, 1, func(int) string { return "shared" })
		tokens.flood(ctx, &gone, 1, func(int) string { return "left" })
		staying.Go(func() {
			if got := tokens.identify(t, "shared"); !strings.HasPrefix(got, userPrefix) {
				t.Errorf("one of two callers has left: %s", got)
			}
		})
		synctest.Wait()
		leave()
		gone.Wait()
		synctest.Wait()
		if n := tokens.reviews.Waiting(); n != 1 {
			t.Errorf("%d wait, for one caller", n)
		}
		close(a.hold)
		staying.Wait()
		synctest.Wait()
		if n := a.count(); n != maxReviews+1 {
			t.Errorf("%d reviews", n)
		}
		if got := tokens.identify(t, "left"); !strings.HasPrefix(got, userPrefix) {
			t.Errorf("it is not reviewed when it comes again: %s", got)
		}
		if n := len(tokens.calls); n != 0 {
			t.Errorf("%d reviews are left", n)
		}
	})
}
