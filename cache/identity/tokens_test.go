package identity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/store"
)

// account is a service account.
func account(namespace, name string) User {
	return User{"system:serviceaccount:" + namespace + ":" + name, "u"}
}

// users returns the number of tokens by user, and checks that byUser is right.
func (t *Tokens) users(tb *testing.T) map[string]int {
	tb.Helper()
	counted := map[string]int{}
	for _, r := range t.tokens {
		counted[r.key]++
	}
	if len(counted) != len(t.byUser) {
		tb.Errorf("%d users have tokens, and %d are counted", len(counted), len(t.byUser))
	}
	for key, n := range counted {
		if t.byUser[key] != n {
			tb.Errorf("%s has %d tokens, counted as %d", key, n, t.byUser[key])
		}
	}
	return counted
}

func TestAUserWithTooManyTokensLosesOnlyItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := open(t, newAPIServer(t), &memory{})
		victim, kept := account("ns", "victim"), account("other", "pod")
		tokens.Issued("victim", victim)
		tokens.Issued("kept", kept)
		issue := func(prefix string, n int, to func(i int) User) {
			for i := range n {
				tokens.Issued(fmt.Sprint(prefix, i), to(i))
				if tokens.offline(prefix+"0") == "" && i < maxPerUser {
					t.Fatalf("what is in use goes, at %d", i)
				}
				time.Sleep(time.Second)
			}
		}
		flood := account("ns", "flood")
		issue("flood", 3*maxPerUser, func(int) User { return flood })
		if n := tokens.users(t)[flood.Key()]; n > maxPerUser || n < maxPerUser/2 {
			t.Errorf("one user has %d tokens", n)
		}
		if tokens.offline(fmt.Sprint("flood", 3*maxPerUser-1)) == "" {
			t.Error("the newest token is not known")
		}
		// A user who may create service accounts in a namespace evicts only those.
		issue("sybil", 2*maxTokens, func(i int) User { return account("evil", fmt.Sprint("s", i)) })
		if n := len(tokens.tokens); n > maxTokens {
			t.Errorf("%d tokens are known", n)
		}
		for secret, user := range map[string]User{"victim": victim, "kept": kept} {
			if got := tokens.offline(secret); got != user.Key() {
				t.Errorf("the token of %s is %q's", user.Name, got)
			}
		}
	})
}

func TestTokensAreKnownAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk memory
		a := newAPIServer(t, "a")
		tokens := open(t, a, &disk)
		tokens.identify(t, "a")
		tokens.Issued("b", account("ns", "b"))
		if keys, _ := disk.Keys(tableTokens); strings.Contains(strings.Join(keys, " "), "user-of-a") {
			t.Errorf("the user is in a key: %v", keys)
		}
		again := open(t, a, &disk)
		if got := again.offline("a"); got != keyOfA {
			t.Errorf("after a restart: %q", got)
		}
		if got, want := again.offline("b"), account("ns", "b").Key(); got != want {
			t.Errorf("after a restart: %q, want %q", got, want)
		}
		if again.identify(t, "a"); a.count() != 1 {
			t.Errorf("%d reviews", a.count())
		}
		clear(disk.values) // another file takes the place of a damaged one
		if err := again.Load(salt); err != nil || again.offline("a") != keyOfA || open(t, a, &disk).offline("a") != keyOfA {
			t.Errorf("with a new file it is %q's, and then %q's, %v", again.offline("a"), open(t, a, &disk).offline("a"), err)
		}
		if err := again.Load([]byte("another salt")); err != nil || again.offline("a") != "" {
			t.Errorf("with another salt: %q, %v", again.offline("a"), err)
		}
		again.users(t)
	})
}

func TestUntrustedTokensOnDiskAreIgnored(t *testing.T) {
	var disk memory
	a := newAPIServer(t)
	tokens := open(t, a, &disk)
	h := tokens.bearer("a").hash.String()
	noUser := []byte(`{"user":"jwt:iss|system:serviceaccount:ns:a","accepted":"2026-11-21T12:00:00Z"}`)
	for key, value := range map[string][]byte{
		h: noUser, "ab": noUser, h + "00": noUser, "x" + h[1:]: []byte(`{"user":{"name":"x"}}`), tokens.bearer("damaged").hash.String(): []byte("{"),
	} {
		if err := disk.Put(store.Pair{Table: tableTokens, Key: key, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, a, &disk)
	if n := len(again.tokens); n != 0 {
		t.Errorf("%d tokens are known", n)
	}
}

func TestHowLongATokenIsValidOffline(t *testing.T) {
	const expires = 1795340000
	tests := map[string]struct {
		after, grace time.Duration
		want         error
	}{
		"one that has not expired":                   {-time.Minute, time.Hour, nil},
		"one that has, and there is no end of grace": {24 * 365 * time.Hour, 0, nil},
		"one that has, within its grace":             {59 * time.Minute, time.Hour, nil},
		"one whose grace is over":                    {61 * time.Minute, time.Hour, ErrExpired},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tokens := open(t, newAPIServer(t), &memory{}, func(o *Options) {
				o.Grace, o.Now = test.grace, func() time.Time { return time.Unix(expires, 0).Add(test.after) }
			})
			user := account("ns", "a")
			tokens.Issued(jwt(issuedClaims), user)
			token := tokens.bearer(jwt(issuedClaims))
			if err := tokens.Offline(token, user.Key()); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if err := tokens.Offline(token, account("ns", "b").Key()); !errors.Is(err, ErrUnknown) {
				t.Errorf("for another user: %v", err)
			}
			if err := tokens.Offline(tokens.bearer("never seen"), ""); !errors.Is(err, ErrUnknown) {
				t.Errorf("a token that is not known: %v", err)
			}
		})
	}
}

func TestTheUseOfATokenIsWrittenOnceAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk memory
		tokens := open(t, newAPIServer(t), &disk)
		tokens.Issued("a", account("ns", "a"))
		clear(disk.values)
		tokens.offline("a")
		if keys, _ := disk.Keys(tableTokens); len(keys) != 0 {
			t.Error("each use of a token is written")
		}
		time.Sleep(noteUseEvery)
		tokens.offline("a")
		if keys, _ := disk.Keys(tableTokens); len(keys) != 1 {
			t.Error("the use of a token is not written")
		}
	})
}
