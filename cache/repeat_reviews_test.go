package cache

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	urlTokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	urlAccessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

func ttl(d time.Duration) func(*Options) { return func(o *Options) { o.AuthorizationTTL = d } }

// tokenReview returns a question for the user of a token.
func tokenReview(token string, audiences ...string) *authenticationv1.TokenReview {
	return &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}
}

func authenticated(r *authenticationv1.TokenReview, user string) *authenticationv1.TokenReview {
	r = r.DeepCopy()
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: r.Spec.Audiences, User: authenticationv1.UserInfo{
		Username: user, UID: "u", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"e": {"v"}},
	}}
	return r
}

// accessReview returns a question for a user's permission.
func accessReview(user, verb string, groups ...string) *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups, Extra: map[string]authorizationv1.ExtraValue{"b": {"1"}, "a": {"2"}},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: "proxy", Name: "n"},
		},
	}
}

func allowed(r *authorizationv1.SubjectAccessReview) *authorizationv1.SubjectAccessReview {
	r = r.DeepCopy()
	r.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC"}
	return r
}

func urlOf(review runtime.Object) string {
	if _, ok := review.(*authenticationv1.TokenReview); ok {
		return urlTokenReviews
	}
	return urlAccessReviews
}

// reviews lets the apiservers answer a review of the node.
func (r *repeatRig) reviews(asked, answered runtime.Object) {
	r.t.Helper()
	contentType, body := encoded(r.t, "application/json", answered)
	r.online(posts(r.t, urlOf(asked), protobuf, asked), http.StatusCreated, body, "Content-Type", contentType)
}

// reviewed returns the offline answer to a review of the node: "yes" and what is said of the user, or "no" and why.
func (r *repeatRig) reviewed(asked runtime.Object, accept string) string {
	r.t.Helper()
	res, body := r.offlineResponse(posts(r.t, urlOf(asked), accept, asked))
	if res == nil || res.StatusCode != http.StatusCreated {
		r.t.Fatalf("%v, %s", res, body)
	}
	object, err := convert.DecodeBody(res.Header.Get("Content-Type"), []byte(body), wire.TypeMeta{})
	if err != nil {
		r.t.Fatal(err)
	}
	switch r := object.(type) {
	case *authenticationv1.TokenReview:
		if u := r.Status.User; r.Status.Authenticated {
			return fmt.Sprintf("yes %s %s %s %s", u.Username, u.UID, u.Groups, u.Extra)
		}
		return "no " + r.Status.Error
	case *authorizationv1.SubjectAccessReview:
		if r.Status.Allowed && !r.Status.Denied {
			return "yes " + r.Status.Reason
		}
		return "no " + r.Status.Reason
	}
	return fmt.Sprintf("%T", object)
}

func (r *repeatRig) saysYes(asked runtime.Object) bool {
	r.t.Helper()
	return strings.HasPrefix(r.reviewed(asked, ofKubelet), "yes")
}

// The same question gets the same yes, also after a restart. Any other gets a no, and says why.
func TestAYesIsRepeatedToTheSameQuestionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t, ttl(time.Hour))
		token, may := tokenReview(theToken, "b", "a"), accessReview("jane", "get", "x", "y")
		r.reviews(token, authenticated(token, "jane"))
		r.reviews(may, allowed(may))
		withSpec := func(change func(*authorizationv1.SubjectAccessReviewSpec)) runtime.Object {
			r := may.DeepCopy()
			change(&r.Spec)
			return r
		}
		claims := tokenReview("unknown")
		claims.Status.Authenticated = true // what a request says of its answer counts nothing
		for range 2 {
			for _, accept := range []string{ofKubelet, "application/json"} {
				for name, tc := range map[string]struct {
					asked runtime.Object
					want  string
				}{
					"the same token":           {token, "yes jane u [g] map[e:[v]]"},
					"audiences in their order": {tokenReview(theToken, "a", "b"), "yes jane u [g] map[e:[v]]"},
					"the same access":          {may, "yes RBAC"},
					"groups in another order":  {accessReview("jane", "get", "y", "x"), "yes RBAC"},
					"another token":            {asked: tokenReview(theToken+"x", "a", "b")},
					"no token":                 {asked: tokenReview("", "a", "b")},
					"another audience":         {asked: tokenReview(theToken, "a")},
					"no audience":              {asked: tokenReview(theToken)},
					"a request with yes":       {asked: claims},
					"another user":             {asked: accessReview("joe", "get", "x", "y")},
					"another verb":             {asked: accessReview("jane", "create", "x", "y")},
					"another group":            {asked: accessReview("jane", "get", "x", "system:masters")},
					"no group":                 {asked: accessReview("jane", "get")},
					"another UID":              {asked: withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) { s.UID = "1" })},
					"another extra":            {asked: withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) { s.Extra["a"][0] = "3" })},
					"another node":             {asked: withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) { s.ResourceAttributes.Name = "m" })},
					"a path": {asked: withSpec(func(s *authorizationv1.SubjectAccessReviewSpec) {
						s.ResourceAttributes, s.NonResourceAttributes = nil, &authorizationv1.NonResourceAttributes{Path: "/", Verb: "get"}
					})},
				} {
					if tc.want == "" {
						tc.want = "no edgehub: the cloud "
					}
					if got := r.reviewed(tc.asked, accept); !strings.HasPrefix(got, tc.want) {
						t.Errorf("%s, Accept %q: %q, want %q", name, accept, got, tc.want)
					}
				}
			}
			r.restarts()
		}
		other := posts(t, urlTokenReviews, ofKubelet, token)
		other.user = as(t.Context(), "jane")
		r.online(question{user: other.user, url: "/version"}, http.StatusOK, "{}")
		if got := r.offline(other); strings.HasPrefix(got, "201") {
			t.Errorf("another user than the node: %s", got)
		}
	})
}

func TestOnlyAYesIsStoredAndANoDeletesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t, ttl(time.Hour))
		token, may := tokenReview(theToken), accessReview("jane", "get")
		denied, unknown := allowed(may), authenticated(token, "jane")
		denied.Status.Denied = true
		unknown.Status.Error = "down"
		for name, tc := range map[string]struct{ asked, yes, no runtime.Object }{
			"not authenticated": {token, authenticated(token, "jane"), token},
			"an error":          {token, authenticated(token, "jane"), unknown},
			"not allowed":       {may, allowed(may), may},
			"denied":            {may, allowed(may), denied},
		} {
			r.reviews(tc.asked, tc.no)
			before := r.saysYes(tc.asked)
			r.reviews(tc.asked, tc.yes)
			between := r.saysYes(tc.asked)
			r.reviews(tc.asked, tc.no)
			after := r.saysYes(tc.asked)
			r.restarts()
			if before || !between || after || r.saysYes(tc.asked) {
				t.Errorf("%s: yes %t before a yes, %t after it, %t when it was taken back", name, before, between, after)
			}
		}
	})
}

// A token that an apiserver refuses to its holder is nobody's from then on, also to kubelet, whatever it was asked about.
// What its user may do is forgotten with the last of the user's tokens, and others keep what is theirs.
func TestWhatIsForgottenWithARefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t, ttl(time.Hour))
		users := map[string]string{"a": "jane", "b": "jane", "c": "joe"}
		r.u.on("review", func(req *http.Request) *http.Response {
			return reviewed(http.StatusCreated, users[strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")])(req)
		})
		asked := map[string]runtime.Object{
			"a": tokenReview("a"), "ax": tokenReview("a", "x"), "b": tokenReview("b"), "c": tokenReview("c"),
			"jane": accessReview("jane", "get"), "joe": accessReview("joe", "get"),
		}
		for name, one := range asked {
			switch one := one.(type) {
			case *authenticationv1.TokenReview:
				r.reviews(one, authenticated(one, users[name[:1]]))
			case *authorizationv1.SubjectAccessReview:
				r.reviews(one, allowed(one))
			}
		}
		for token := range users {
			r.online(question{user: as(t.Context(), token), url: "/version"}, http.StatusOK, "{}")
		}
		for _, step := range []struct{ refused, left string }{{"nobody's", "a ax b c jane joe"}, {"a", "b c jane joe"}, {"b", "c joe"}} {
			r.u.on("review", reviewed(http.StatusUnauthorized, ""))
			time.Sleep(time.Minute)
			r.online(question{user: as(t.Context(), step.refused), url: "/version"}, http.StatusUnauthorized, "")
			for range 2 {
				var left []string
				for name, one := range asked {
					if r.saysYes(one) {
						left = append(left, name)
					}
				}
				if slices.Sort(left); strings.Join(left, " ") != step.left {
					t.Errorf("after %s was refused, %v are answered with yes, want %s", step.refused, left, step.left)
				}
				r.restarts()
			}
		}
	})
}

func TestAYesExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		r := newRepeatRig(t, ttl(day))
		may := accessReview("jane", "get")
		r.reviews(may, allowed(may))
		r.stop() // or else it is confirmed
		time.Sleep(day / 2)
		r.restarts()
		r.reviews(may, allowed(may)) // it counts from here
		r.u.goAway()
		time.Sleep(day - time.Second)
		for range 2 {
			if !r.saysYes(may) {
				t.Error("no just before its end")
			}
			r.restarts()
		}
		time.Sleep(time.Second)
		for range 2 {
			if r.saysYes(may) {
				t.Error("yes at its end")
			}
			r.restarts()
		}
		r.u.comeBack()
		r.reviews(may, allowed(may))
		r.restarts(ttl(0))
		if got := r.reviewed(may, ofKubelet); !strings.HasSuffix(got, "--offline-authorization-ttl=0 lets nobody in then") {
			t.Errorf("turned off: %s", got)
		}
		r.reviews(may, allowed(may))
		if r.restarts(); r.saysYes(may) {
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
		"within its grace":         {time.Minute, time.Minute, "yes jane u [g] map[e:[v]]"},
		"after its grace":          {time.Minute, time.Minute + time.Second, "no edgehub: " + identity.ErrExpired.Error()},
		"after it, without an end": {0, time.Hour, "yes jane u [g] map[e:[v]]"},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRepeatRig(t, ttl(24*time.Hour), func(o *Options) { o.TokenGrace = tc.grace })
			expires := time.Now().Add(time.Hour)
			claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix()))
			token := tokenReview("header." + claims + ".signature")
			r.reviews(token, authenticated(token, "jane"))
			r.stop()
			time.Sleep(time.Until(expires) + tc.after)
			for range 2 {
				r.restarts()
				if got := r.reviewed(token, ofKubelet); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
			}
		})
	}
}

// The clock of each bubble starts in 2000.
func TestAClockThatJumpsDoesNotExtendAYes(t *testing.T) {
	const years = 20 * 365 * 24 * time.Hour
	may := accessReview("jane", "get")
	// kept returns a folder with a yes that was stored some time after 2000.
	kept := func(t *testing.T, after time.Duration) string {
		t.Helper()
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(after)
			r := newRepeatRigIn(t, dir, ttl(time.Hour))
			r.reviews(may, allowed(may))
		})
		return dir
	}
	t.Run("set back, and restarted again and again", func(t *testing.T) {
		dir := kept(t, years)
		for used := 10 * time.Minute; used <= 70*time.Minute; used += 10 * time.Minute {
			synctest.Test(t, func(t *testing.T) {
				r := newRepeatRigIn(t, dir, ttl(time.Hour))
				r.u.goAway()
				time.Sleep(10 * time.Minute)
				if yes := r.saysYes(may); yes != (used < time.Hour) {
					t.Errorf("used for %v: yes %t", used, yes)
				}
			})
		}
	})
	t.Run("set forward", func(t *testing.T) {
		dir := kept(t, 0)
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(years)
			if newRepeatRigIn(t, dir, ttl(time.Hour)).saysYes(may) {
				t.Error("yes 20 years later")
			}
		})
	})
}

// Only the node's own question begins the TTL of a yes, and only a no ends it before.
func TestAYesThatIsConfirmedLastsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lasts = 2 * time.Hour
		r := newRepeatRig(t, ttl(lasts))
		may := accessReview("jane", "get")
		r.reviews(may, allowed(may))
		began, other := time.Now(), allowed(may)
		other.Status.Reason = "another binding"
		_, body := encoded(t, "application/json", other)
		for _, step := range []struct {
			code int
			want string
		}{{http.StatusInternalServerError, "yes RBAC"}, {http.StatusCreated, "yes another binding"}} {
			r.u.onText("get", step.code, body)
			time.Sleep(15 * time.Minute)
			if got := r.reviewed(may, ofKubelet); got != step.want {
				t.Errorf("confirmed with %d: %s, want %s", step.code, got, step.want)
			}
		}
		time.Sleep(time.Until(began.Add(lasts - time.Second)))
		if !r.saysYes(may) {
			t.Error("no before its TTL")
		}
		if time.Sleep(time.Second); r.saysYes(may) {
			t.Error("yes after its TTL")
		}
	})
}

// What cannot be read is refused, and kept neither as a question nor as an answer. No error quotes a body.
func TestMalformedReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged strings.Builder
		r := newRepeatRig(t, ttl(time.Hour), logsTo(&logged))
		yes := authenticated(tokenReview(theToken), "jane")
		good := posts(t, urlTokenReviews, protobuf, yes)
		_, other := encoded(t, "application/json", allowed(accessReview(theToken, "get")))
		for name, bad := range map[string]question{
			"no JSON":                  {body: `{"spec":{"token":"` + theToken, header: []string{"Content-Type", "application/json"}},
			"a wrong type":             {body: `{"spec":"` + theToken + `"}`, header: []string{"Content-Type", "application/json"}},
			"cut short":                {body: good.body[:len(good.body)-3], header: []string{"Content-Type", protobuf}},
			"YAML":                     {body: good.body, header: []string{"Content-Type", "application/yaml"}},
			"another kind":             {body: other, header: []string{"Content-Type", "application/json"}},
			"a kind that there is not": {body: `{"kind":"` + theToken + `","apiVersion":"v9"}`, header: []string{"Content-Type", "application/json"}},
			"an enormous one":          {body: good.body + string(make([]byte, 1<<17)), header: []string{"Content-Type", protobuf}},
		} {
			r.online(good, http.StatusCreated, bad.body, bad.header...)
			bad.method, bad.url = http.MethodPost, urlTokenReviews
			r.online(bad, http.StatusCreated, good.body, "Content-Type", protobuf)
			if got := r.offline(bad); strings.Contains(got, "secret-part") || strings.HasPrefix(got, "201") {
				t.Errorf("%s: %s", name, got)
			}
			if r.saysYes(tokenReview(theToken)) {
				t.Errorf("%s is kept as a yes", name)
			}
		}
		if got := r.offline(question{method: http.MethodPost, url: urlTokenReviews, body: good.body, header: append(good.header, "Accept", "text/html")}); !strings.HasPrefix(got, "406") {
			t.Errorf("a client that wants neither encoding: %s", got)
		}
		if r.stop(); strings.Contains(logged.String(), "secret-part") {
			t.Errorf("the log has the token:\n%s", &logged)
		}
	})
}
