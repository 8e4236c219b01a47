package identity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
		tokens := open(t, newAPIServer(t), memory(t))
		victim, kept := account("ns", "victim"), account("other", "pod")
		tokens.Issued("victim", victim)
		tokens.Issued("kept", kept)
		flood := account("ns", "flood")
		for i := range 2 * maxTokens {
			tokens.Issued(fmt.Sprint("flood", i), flood)
			if tokens.offline("flood0") == "" {
				t.Fatalf("what is in use goes, at %d", i)
			}
			time.Sleep(time.Second)
		}
		if tokens.offline(fmt.Sprint("flood", 2*maxTokens-1)) == "" {
			t.Error("the newest token is not known")
		}
		// A user who may create service accounts in a namespace evicts only those, when others have no more.
		for i := range 2 * maxTokens {
			tokens.Issued(fmt.Sprint("sybil", i), account("evil", fmt.Sprint("s", i)))
			time.Sleep(time.Second)
		}
		of, others := tokens.users(t), 0
		for key, n := range of {
			if key != flood.Key() {
				others += n
			}
		}
		if n := of[flood.Key()] + others; n > maxTokens || n < maxTokens/2 || of[flood.Key()] < maxTokens/3 {
			t.Errorf("%d tokens are known, %d of them of the first that floods", n, of[flood.Key()])
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
		disk := memory(t)
		a := newAPIServer(t, "a")
		tokens := open(t, a, disk)
		tokens.identify(t, "a")
		tokens.Issued("b", account("ns", "b"))
		if keys := disk.Keys(); len(keys) != 2 || strings.Contains(strings.Join(keys, " "), "user-of-a") {
			t.Errorf("the user is in a key: %v", keys)
		}
		again := open(t, a, disk)
		if got := again.offline("a"); got != keyOfA {
			t.Errorf("after a restart: %q", got)
		}
		if got, want := again.offline("b"), account("ns", "b").Key(); got != want {
			t.Errorf("after a restart: %q, want %q", got, want)
		}
		if again.identify(t, "a"); a.count() != 1 {
			t.Errorf("%d reviews", a.count())
		}
		again.users(t)
	})
}

// What is in a file that is opened late was hashed by another salt. What memory has learned until then is newer.
func TestTokensOfAFileThatIsOpenedLate(t *testing.T) {
	before, since := account("ns", "before").Key(), account("ns", "since").Key()
	for name, test := range map[string]struct {
		inFile []string          // tokens of the last process
		want   map[string]string // users by token: of no others anything is left
	}{
		"a new file":                             {nil, map[string]string{"new": since}},
		"a file with other tokens":               {[]string{"old"}, map[string]string{"old": before, "new": since}},
		"a file in which one is somebody else's": {[]string{"old", "new"}, map[string]string{"old": before, "new": since}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, a := t.TempDir(), newAPIServer(t)
			a.users["new"] = authenticationv1.UserInfo{Username: account("ns", "since").Name, UID: account("ns", "since").UID}
			if len(test.inFile) > 0 {
				first := newLog(t, dir)
				tokens := openIn(t, a, first)
				for _, secret := range test.inFile {
					tokens.Issued(secret, account("ns", "before"))
				}
				openLog(t, first, tokens)
				closeLog(t, first)
			}
			late := newLog(t, dir)
			tokens := openIn(t, a, late)
			tokens.Issued("new", account("ns", "since"))
			underWay := tokens.bearer("new")
			openLog(t, late, tokens)
			if user, err := tokens.Identify(t.Context(), underWay); err != nil || user != since {
				t.Errorf("of a request that was under way it is %q's, %v", user, err)
			}
			if got := tokens.Usable()[since]; got == nil || got.Authorization() != "Bearer new" {
				t.Errorf("memory has %v of the user", got)
			}
			for _, when := range []string{"when it is open", "after a restart"} {
				for secret, want := range test.want {
					if got := tokens.offline(secret); got != want {
						t.Errorf("%s, %s is %q's, want %q", when, secret, got, want)
					}
				}
				onDisk, known := late.Table("tokens").Keys(), 0
				for _, n := range tokens.users(t) {
					known += n
				}
				if known != len(test.want) || len(onDisk) != known {
					t.Errorf("%s, %d tokens are known, and on disk are %v", when, known, onDisk)
				}
				closeLog(t, late)
				late = newLog(t, dir)
				openLog(t, late, nil)
				tokens = openIn(t, a, late)
			}
			closeLog(t, late)
		})
	}
}

func TestUntrustedTokensOnDiskAreIgnored(t *testing.T) {
	disk := memory(t)
	a := newAPIServer(t)
	tokens := open(t, a, disk)
	h := tokens.bearer("a").hash
	noUser := []byte(`{"user":"jwt:iss|system:serviceaccount:ns:a","accepted":"2026-11-21T12:00:00Z"}`)
	for key, value := range map[string][]byte{
		h: noUser, "ab": noUser, tokens.bearer("damaged").hash: []byte("{"),
	} {
		disk.Put(key, value)
	}
	again := open(t, a, disk)
	if n := len(again.tokens); n != 0 || len(disk.Keys()) != 0 {
		t.Errorf("%d tokens are known, and these are left: %s", n, contents(t, disk))
	}
}

func TestHowLongATokenIsValidOffline(t *testing.T) {
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
			tokens := open(t, newAPIServer(t), memory(t), func(o *Options) { o.Grace = test.grace })
			user := account("ns", "a")
			secret := jwt(fmt.Sprintf(`{"exp":%d}`, time.Now().Add(-test.after).Unix()))
			tokens.Issued(secret, user)
			token := tokens.bearer(secret)
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
		disk := memory(t)
		tokens := open(t, newAPIServer(t), disk)
		tokens.Issued("a", account("ns", "a"))
		disk.Delete(disk.Keys()...)
		tokens.offline("a")
		if len(disk.Keys()) != 0 {
			t.Error("each use of a token is written")
		}
		time.Sleep(noteUseEvery)
		tokens.offline("a")
		if len(disk.Keys()) != 1 {
			t.Error("the use of a token is not written")
		}
	})
}
