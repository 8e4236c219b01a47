package identity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

const keyOfA = `user:"user-of-a"#1`

func TestConcurrentRequestsShareOneReview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t, "a")
		a.hold = make(chan struct{})
		tokens := open(t, a, memory(t))
		var g sync.WaitGroup
		for range 10 {
			g.Go(func() {
				if got := tokens.identify(t, "a"); got != keyOfA {
					t.Error(got)
				}
			})
		}
		synctest.Wait()
		close(a.hold)
		g.Wait()
		for range 10 {
			tokens.identify(t, "a")
			time.Sleep(time.Hour)
		}
		if n := a.count(); n != 1 {
			t.Errorf("%d reviews", n)
		}
	})
}

func TestTheUserOfAReview(t *testing.T) {
	tests := map[string]struct {
		user authenticationv1.UserInfo
		code int // of SelfSubjectReviews
		want string
		asks string
	}{
		"a user":                              {authenticationv1.UserInfo{Username: "x", UID: "7"}, 0, `user:"x"#7`, "self"},
		"a user without a UID":                {authenticationv1.UserInfo{Username: "x"}, 0, `user:"x"#`, "self"},
		"anonymous, by name":                  {authenticationv1.UserInfo{Username: "system:anonymous"}, 0, "", "self"},
		"anonymous, by group":                 {authenticationv1.UserInfo{Username: "x", Groups: []string{"system:unauthenticated"}}, 0, "", "self"},
		"nobody":                              {authenticationv1.UserInfo{}, 0, "", "self"},
		"a user who may not review itself":    {authenticationv1.UserInfo{Username: "x"}, 403, `user:"x"#`, "self node"},
		"a user of an apiserver of old":       {authenticationv1.UserInfo{Username: "x"}, 404, `user:"x"#`, "self node"},
		"a user of an apiserver without it":   {authenticationv1.UserInfo{Username: "x"}, 405, `user:"x"#`, "self node"},
		"anonymous, to the node":              {authenticationv1.UserInfo{Username: "system:anonymous"}, 403, "", "self node"},
		"an apiserver that cannot say":        {authenticationv1.UserInfo{Username: "x"}, 500, "", "self"},
		"an apiserver that has too much work": {authenticationv1.UserInfo{Username: "x"}, 429, "", "self"},
		"a user who may review itself by 200": {authenticationv1.UserInfo{Username: "x"}, 200, "", "self"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a := newAPIServer(t)
			a.users["token"], a.selfCode = test.user, test.code
			tokens := open(t, a, memory(t))
			got, err := tokens.Identify(t.Context(), tokens.bearer("token"))
			if got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("got %q, %v", got, err)
			}
			if got := tokens.offline("token"); got != test.want {
				t.Errorf("offline it is %q", got)
			}
			if asks := strings.Join(a.asked, " "); asks != test.asks {
				t.Errorf("asked as %s, want %s", asks, test.asks)
			}
		})
	}
}

func TestAFailedReviewIsNotRepeatedAtOnce(t *testing.T) {
	const secret = "secret-a"
	for name, fail := range map[string]func(*apiserver){
		"an apiserver that knows nothing of the token": func(a *apiserver) { delete(a.users, secret) },
		"the same by way of the node":                  func(a *apiserver) { a.selfCode = 403; delete(a.users, secret) },
		"an apiserver that fails":                      func(a *apiserver) { a.selfCode = 500 },
		"no apiserver":                                 func(a *apiserver) { a.err = errors.New("connection refused") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAPIServer(t, secret)
				tokens := open(t, a, memory(t))
				fail(a)
				for range 20 {
					if got := tokens.identify(t, secret); strings.HasPrefix(got, userPrefix) {
						t.Fatalf("it is %s", got)
					}
				}
				if n := a.count(); n > 2 {
					t.Errorf("%d reviews", n)
				}
				a.set(func() {
					a.users[secret], a.selfCode, a.err = authenticationv1.UserInfo{Username: "user-of-" + secret, UID: "1"}, 0, nil
				})
				time.Sleep(retryAfter)
				if got := tokens.identify(t, secret); got != `user:"user-of-secret-a"#1` {
					t.Errorf("when it could be reviewed: %s", got)
				}
			})
		})
	}
}

// The time in the queue and the time of a review have separate bounds.
func TestReviewsAreBoundedInTimeAndNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t)
		a.hold = make(chan struct{}) // it never answers
		tokens := open(t, a, memory(t))
		var g sync.WaitGroup
		took := make(chan time.Duration, 5*maxReviews)
		for i := range 5 * maxReviews {
			g.Go(func() {
				began := time.Now()
				defer func() { took <- time.Since(began) }()
				if got := tokens.identify(t, fmt.Sprint("t", i)); strings.HasPrefix(got, userPrefix) {
					t.Error(got)
				}
			})
		}
		synctest.Wait()
		if n := 5*maxReviews - tokens.reviews.Waiting(); n != maxReviews {
			t.Errorf("%d reviews at once", n)
		}
		g.Wait()
		close(took)
		for took := range took {
			if took < reviewTimeout || took > waitTimeout+reviewTimeout {
				t.Errorf("a caller waits for %s", took)
			}
		}
		for i := range 2 * maxTokens {
			tokens.fail(fmt.Sprint(i))
		}
		if n := len(tokens.failed); n > maxTokens {
			t.Errorf("%d failures are remembered", n)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := tokens.Identify(gone, tokens.bearer("late")); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller who has left: %v", err)
		}
		time.Sleep(reviewTimeout)
	})
}

// A token in an apiserver's static token file may be given to another user.
func TestATokenIsReviewedAgainNextDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t, "a")
		tokens := open(t, a, memory(t))
		tokens.identify(t, "a")
		a.set(func() { a.users["a"] = authenticationv1.UserInfo{Username: "other"} })
		time.Sleep(reviewEvery)
		if got := tokens.offline("a"); got != keyOfA {
			t.Errorf("offline, a day later: %q", got)
		}
		a.set(func() { a.selfCode = 500 })
		if got := tokens.identify(t, "a"); strings.HasPrefix(got, userPrefix) {
			t.Errorf("while it cannot be reviewed it is %s", got)
		}
		a.set(func() { a.selfCode = 0 })
		time.Sleep(retryAfter)
		if got := tokens.identify(t, "a"); got != `user:"other"#` {
			t.Errorf("a day later it is %s", got)
		}
		if n := len(tokens.byUser); n != 1 {
			t.Errorf("%d users have a token", n)
		}
	})
}

func TestA401IsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPIServer(t, "a", "b")
		disk := memory(t)
		var refused []string
		tokens := open(t, a, disk, func(o *Options) {
			o.Refused = func(token, userName string) { refused = append(refused, token+" of "+userName) }
		})
		tokens.identify(t, "a")
		tokens.identify(t, "b")
		for range 10 { // of a kubelet, say
			tokens.Unauthorized(t.Context(), tokens.bearer("a"))
		}
		if n := a.count(); n != 3 || tokens.offline("a") != keyOfA {
			t.Errorf("after %d reviews it is %q's", n, tokens.offline("a"))
		}
		for _, fails := range []func(){
			func() { a.err = errors.New("connection refused") },
			func() { a.err, a.selfCode = nil, http.StatusInternalServerError },
		} {
			time.Sleep(time.Minute)
			a.set(fails)
			if tokens.Unauthorized(t.Context(), tokens.bearer("a")); tokens.offline("a") != keyOfA {
				t.Error("a review that failed has the token forgotten")
			}
		}
		a.set(func() { a.selfCode = 0; delete(a.users, "a") })
		time.Sleep(time.Minute)
		tokens.Unauthorized(t.Context(), tokens.bearer("a"))
		before := a.count()
		tokens.Unauthorized(t.Context(), tokens.bearer("nobody's"))
		if n := a.count() - before; n != 0 {
			t.Errorf("%d reviews for a token that was not known", n)
		}
		if fmt.Sprint(refused) != "[a of user-of-a]" {
			t.Errorf("it was told of %v", refused)
		}
		for _, tokens := range []*Tokens{tokens, open(t, a, disk)} {
			if got := tokens.offline("a"); got != "" {
				t.Errorf("a refused token is %s's", got)
			}
			if tokens.offline("b") == "" {
				t.Error("another one is forgotten")
			}
		}
	})
}

func TestNothingIsReviewedWhileTheHubStops(t *testing.T) {
	tokens := open(t, newAPIServer(t, "a"), memory(t), func(o *Options) {
		o.Background = func(func(context.Context)) bool { return false }
	})
	if _, err := tokens.Identify(t.Context(), tokens.bearer("a")); !errors.Is(err, errStopping) || len(tokens.calls) > 0 {
		t.Errorf("got %v, and %d reviews are left", err, len(tokens.calls))
	}
}
