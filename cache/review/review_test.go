package review_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/review"
	"github.com/edgehub-io/edgehub/cache/wire"
)

func TestAYesIsRepeatedAlsoAfterARestart(t *testing.T) {
	disk := memory{}
	o := review.Options{TTL: time.Hour}
	k := open(t, disk, o)
	token, may := tokenReview(secret, "b", "a"), accessReview("jane", "get", "x", "y")
	keep(t, k, token, authenticated(token, "jane"))
	keep(t, k, may, allowed(may))
	for range 2 {
		for _, accept := range []string{kubelet, asJSON, ""} {
			for _, r := range []runtime.Object{token, tokenReview(secret, "a", "b")} {
				if got, want := answerTo(t, k, r, accept), "yes jane u g v"; got != want {
					t.Errorf("Accept %q: %q, want %q", accept, got, want)
				}
			}
			for _, r := range []runtime.Object{may, accessReview("jane", "get", "y", "x")} {
				if got, want := answerTo(t, k, r, accept), "yes RBAC"; got != want {
					t.Errorf("Accept %q: %q, want %q", accept, got, want)
				}
			}
		}
		k = open(t, disk, o)
	}
	for key, value := range disk {
		if strings.Contains(key, "jane") || strings.Contains(key, "nodes") || strings.Contains(key+string(value), secret) {
			t.Errorf("the disk tells the token, or a key the question: %s %s", key, value)
		}
	}
}

func TestAnyOtherQuestionIsAnsweredWithNo(t *testing.T) {
	k := open(t, memory{}, review.Options{TTL: time.Hour})
	token, may := tokenReview(secret, "a"), accessReview("jane", "get", "x")
	keep(t, k, token, authenticated(token, "jane"))
	keep(t, k, may, allowed(may))
	withSpec := func(change func(*authorizationv1.SubjectAccessReviewSpec)) runtime.Object {
		r := may.DeepCopy()
		change(&r.Spec)
		return r
	}
	claims := tokenReview("unknown")
	claims.Status.Authenticated = true // what a request says of its answer counts nothing
	for name, r := range map[string]runtime.Object{
		"another token":      tokenReview(secret + "x"),
		"no token":           tokenReview("", "a"),
		"another audience":   tokenReview(secret, "b"),
		"no audience":        tokenReview(secret),
		"a request with yes": claims,
		"another user":       accessReview("joe", "get", "x"),
		"another verb":       accessReview("jane", "create", "x"),
		"another group":      accessReview("jane", "get", "x", "system:masters"),
		"no group":           accessReview("jane", "get"),
		"another UID":        withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) { s.UID = "1" }),
		"another extra":      withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) { s.Extra["a"][0] = "3" }),
		"another node":       withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Name = "m" }),
		"a path": withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) {
			s.ResourceAttributes, s.NonResourceAttributes = nil, &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"}
		}),
	} {
		for _, accept := range []string{kubelet, asJSON} {
			if got, want := answerTo(t, k, r, accept), "no "+why; got != want {
				t.Errorf("%s, Accept %q: %q, want %q", name, accept, got, want)
			}
		}
	}
	if got := answerTo(t, k, may, kubelet); got != "yes RBAC" {
		t.Errorf("the same question after all others: %s", got)
	}
}

func TestOnlyAYesIsStoredAndANoDeletesIt(t *testing.T) {
	token, may := tokenReview(secret), accessReview("jane", "get")
	denied, unknown := allowed(may), authenticated(token, "jane")
	denied.Status.Denied = true
	unknown.Status.Error = "down"
	for name, answered := range map[string]runtime.Object{
		"not authenticated": token, "an error": unknown, "not allowed": may, "denied": denied,
	} {
		disk := memory{}
		k := open(t, disk, review.Options{TTL: time.Hour})
		asked, yes := runtime.Object(may), runtime.Object(allowed(may))
		if _, ok := answered.(*authenticationv1.TokenReview); ok {
			asked, yes = token, authenticated(token, "jane")
		}
		keep(t, k, asked, answered)
		if k.Len() != 0 {
			t.Errorf("%s is remembered", name)
		}
		keep(t, k, asked, yes)
		keep(t, k, asked, answered)
		if got := answerTo(t, k, asked, kubelet); got != "no "+why {
			t.Errorf("%s after a yes: %s", name, got)
		}
		if n := open(t, disk, review.Options{TTL: time.Hour}).Len(); n != 0 {
			t.Errorf("%s after a yes: %d are on disk", name, n)
		}
	}
}

// A token that is refused is nobody's, whatever it was asked about; what its user may do is forgotten with
// the last of the user's tokens, and others keep what is theirs.
func TestWhatIsForgottenWithARefusedToken(t *testing.T) {
	disk := memory{}
	o := review.Options{TTL: time.Hour}
	k := open(t, disk, o)
	for _, r := range []*authenticationv1.TokenReview{tokenReview("a"), tokenReview("a", "x"), tokenReview("b")} {
		keep(t, k, r, authenticated(r, "jane"))
	}
	joe := tokenReview("c")
	keep(t, k, joe, authenticated(joe, "joe"))
	for _, user := range []string{"jane", "joe"} {
		keep(t, k, accessReview(user, "get"), allowed(accessReview(user, "get")))
	}
	for _, step := range []struct{ refused, left string }{
		{"nobody's", "a ax b c jane joe"},
		{"a", "b c jane joe"},
		{"b", "c joe"},
	} {
		k.Refused(step.refused, "jane")
		for range 2 {
			var left []string
			for name, r := range map[string]runtime.Object{
				"a": tokenReview("a"), "ax": tokenReview("a", "x"), "b": tokenReview("b"), "c": joe,
				"jane": accessReview("jane", "get"), "joe": accessReview("joe", "get"),
			} {
				if strings.HasPrefix(answerTo(t, k, r, asJSON), "yes") {
					left = append(left, name)
				}
			}
			if slices.Sort(left); strings.Join(left, " ") != step.left {
				t.Errorf("after %s was refused, %v are answered with yes, want %s", step.refused, left, step.left)
			}
			k = open(t, disk, o)
		}
	}
}

func TestAYesExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 24 * time.Hour
		disk := memory{}
		o := review.Options{TTL: ttl}
		k := open(t, disk, o)
		may := accessReview("jane", "get")
		keep(t, k, may, allowed(may))
		time.Sleep(ttl / 2)
		keep(t, k, may, allowed(may)) // again: it counts from here
		time.Sleep(ttl - time.Second)
		for range 2 {
			if got := answerTo(t, k, may, kubelet); got != "yes RBAC" {
				t.Errorf("just before its end: %s", got)
			}
			k = open(t, disk, o)
		}
		time.Sleep(time.Second)
		for range 2 {
			if got := answerTo(t, k, may, kubelet); got != "no "+why {
				t.Errorf("at its end: %s", got)
			}
			k = open(t, disk, o)
		}
		if k.Len() != 0 {
			t.Errorf("%d are kept", k.Len())
		}

		keep(t, k, may, allowed(may))
		k = open(t, disk, review.Options{TTL: 0})
		if got := answerTo(t, k, may, kubelet); got != "no "+why {
			t.Errorf("turned off: %s", got)
		}
		keep(t, k, may, allowed(may))
		if k.Len() != 0 {
			t.Error("turned off, it remembers")
		}
	})
}

// A token is whoever's it was for as long as it is good for reading.
func TestAYesAboutATokenEndsWithTheTokensGrace(t *testing.T) {
	for name, tc := range map[string]struct {
		grace, after time.Duration // of the token's expiry
		want         string
	}{
		"within its grace":         {time.Minute, time.Minute, "yes jane u g v"},
		"after its grace":          {time.Minute, time.Minute + time.Second, "no edgehub: " + identity.ErrExpired.Error()},
		"after it, without an end": {0, time.Hour, "yes jane u g v"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memory{}
				o := review.Options{TTL: 24 * time.Hour, Grace: tc.grace}
				k := open(t, disk, o)
				expires := time.Now().Add(time.Hour)
				claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix()))
				token := tokenReview("header." + claims + ".signature")
				keep(t, k, token, authenticated(token, "jane"))
				time.Sleep(time.Until(expires) + tc.after)
				for range 2 {
					if got := answerTo(t, k, token, kubelet); got != tc.want {
						t.Errorf("%s, want %s", got, tc.want)
					}
					k = open(t, disk, o)
				}
			})
		})
	}
}

// The clock of each synctest bubble starts in 2000.
func TestAClockThatJumpsDoesNotExtendAYes(t *testing.T) {
	const ttl = time.Hour
	may := accessReview("jane", "get")
	o := review.Options{TTL: ttl}
	// kept returns a table with a yes that was stored some time after 2000, and repeated some time later.
	kept := func(t *testing.T, after, use time.Duration) memory {
		t.Helper()
		disk := memory{}
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(after)
			k := open(t, disk, o)
			keep(t, k, may, allowed(may))
			time.Sleep(use)
			if got := answerTo(t, k, may, kubelet); got != "yes RBAC" {
				t.Errorf("after %v: %s", use, got)
			}
		})
		return disk
	}
	t.Run("set back, and restarted again and again", func(t *testing.T) {
		table := kept(t, 20*365*24*time.Hour, 0)
		var used time.Duration
		for restarts := 0; used <= ttl; restarts++ {
			synctest.Test(t, func(t *testing.T) {
				k := open(t, table, o)
				time.Sleep(10 * time.Minute)
				if used += 10 * time.Minute; used > ttl {
					return
				}
				if got := answerTo(t, k, may, kubelet); (got == "yes RBAC") != (used < ttl) {
					t.Errorf("used for %v: %s", used, got)
				}
			})
		}
	})
	t.Run("set forward", func(t *testing.T) {
		table := kept(t, 0, 0)
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(20 * 365 * 24 * time.Hour)
			if got := answerTo(t, open(t, table, o), may, kubelet); got != "no "+why {
				t.Errorf("20 years later: %s", got)
			}
		})
	})
}

func TestErrorsOfMalformedReviewsContainNoToken(t *testing.T) {
	k := open(t, memory{}, review.Options{TTL: time.Hour})
	good, goodType := encode(t, protobuf, authenticated(tokenReview(secret), "jane"))
	other, otherType := encode(t, asJSON, allowed(accessReview(secret, "get")))
	for _, c := range []struct {
		name, contentType string
		body              []byte
	}{
		{"no JSON", asJSON, []byte(`{"spec":{"token":"` + secret)},
		{"a wrong type", asJSON, []byte(`{"spec":"` + secret + `"}`)},
		{"cut short", goodType, good[:len(good)-3]},
		{"YAML", "application/yaml", good},
		{"another kind", otherType, other},
		{"a kind that there is not", asJSON, []byte(`{"kind":"` + secret + `","apiVersion":"v9"}`)},
	} {
		_, _, err := k.Answer(tokens, c.body, c.contentType, kubelet, why)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, err := range []error{
			k.Keep(tokens, c.body, c.contentType, good, goodType),
			k.Keep(tokens, good, goodType, c.body, c.contentType),
		} {
			if err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("keep %s: %v", c.name, err)
			}
		}
	}
	if err := k.Keep(tokens, good, goodType, append(good, make([]byte, 1<<17)...), goodType); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("an enormous answer: %v", err)
	}
	if _, _, err := k.Answer(tokens, good, goodType, "text/html", why); !errors.Is(err, convert.ErrNotAcceptable) {
		t.Errorf("a client that wants neither encoding: %v", err)
	}
	if k.Len() != 0 {
		t.Errorf("%d are kept", k.Len())
	}
}

func TestConcurrentUse(t *testing.T) {
	k := open(t, memory{}, review.Options{TTL: time.Hour, Bounds: quota.Bounds{Count: 5, Bytes: 1 << 20}})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r := tokenReview(fmt.Sprint("token", i))
			keep(t, k, r, authenticated(r, "jane"))
			answerTo(t, k, r, kubelet)
		})
	}
	all.Wait()
	if k.Len() != 5 {
		t.Errorf("%d answers", k.Len())
	}
}

func FuzzAnswer(f *testing.F) {
	k, err := review.Open(memory{}, review.Options{TTL: time.Hour})
	if err != nil {
		f.Fatal(err)
	}
	token := tokenReview(secret)
	keep(f, k, token, authenticated(token, "jane"))
	body, contentType := encode(f, protobuf, tokenReview("t"))
	f.Add(contentType, body)
	body, err = json.Marshal(tokenReview("t"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(asJSON, body)
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		out, _, err := k.Answer(tokens, body, contentType, asJSON, why)
		if err == nil && strings.Contains(string(out), `"authenticated":true`) && !strings.Contains(string(body), secret) {
			t.Errorf("%q is answered with %s", body, out)
		}
	})
}

// #17: an answer counts against the user who was reviewed: whoever asks is the node, and a name is not who asks.
func TestAFloodOfReviewsDoesNotEvictOtherUsers(t *testing.T) {
	for flooder, user := range map[string]func(i int) string{
		"a user with the node's name": func(int) string { return "node" },
		"many accounts":               func(i int) string { return fmt.Sprint("system:serviceaccount:flood:a", i) },
	} {
		t.Run(flooder, func(t *testing.T) {
			k := open(t, memory{}, review.Options{TTL: time.Hour, Bounds: quota.Bounds{Count: 5, Bytes: 1 << 20}})
			const victim = "system:serviceaccount:victims:a"
			token, may := tokenReview(secret), accessReview(victim, "get")
			keep(t, k, token, authenticated(token, victim))
			keep(t, k, may, allowed(may))
			for i := range 10 {
				r := tokenReview(fmt.Sprint("flood", i))
				keep(t, k, r, authenticated(r, user(i)))
			}
			if got := answerTo(t, k, token, kubelet) + ", " + answerTo(t, k, may, kubelet); got != "yes "+victim+" u g v, yes RBAC" {
				t.Errorf("the victim's: %s", got)
			}
		})
	}
}
