package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// Whoever has many answers loses its own, of whatever kind. All service accounts of a namespace are one tenant. A review
// counts against who was reviewed: whoever asks is the node, and a name is not who asks.
func TestAFloodOfAnswersDoesNotEvictOtherUsers(t *testing.T) {
	account := func(namespace string, i int) string { return fmt.Sprintf("system:serviceaccount:%s:a%d", namespace, i) }
	of := func(user string) func(*testing.T) context.Context {
		return func(t *testing.T) context.Context {
			if user == "node" {
				return t.Context()
			}
			return as(t.Context(), user)
		}
	}
	big := strings.Repeat("x", 60_000)
	version := func(r *repeatRig, user string) question { return question{user: of(user)(r.t), url: "/version"} }
	token := func(r *repeatRig, user string) question {
		q := posts(r.t, urlToken, ofKubelet, tokenRequest("p"))
		q.user = of(user)(r.t)
		return q
	}
	hasVersion := func(r *repeatRig, user string) bool { return r.offline(version(r, user)) == "200 v" }
	hasReview := func(r *repeatRig, user string) bool { return r.saysYes(tokenReview(user)) }
	accounts := func(i int) string { return account("flood", i) }
	victims := []string{"victim", account("victims", 1)}
	for name, tc := range map[string]struct {
		keep    func(r *repeatRig, user string)
		has     func(r *repeatRig, user string) bool
		flooder func(i int) string
		flood   int
		victims []string
	}{
		"paths": {
			keep:    func(r *repeatRig, user string) { r.online(version(r, user), http.StatusOK, "v") },
			has:     hasVersion,
			flooder: accounts, flood: 1010, victims: append(victims, "node"),
		},
		"large paths": {
			keep: func(r *repeatRig, user string) {
				body := "v"
				if strings.Contains(user, "flood") {
					body = strings.Repeat(big, 17)
				}
				r.online(version(r, user), http.StatusOK, body)
			},
			has:     hasVersion,
			flooder: accounts, flood: 40, victims: append(victims, "node"),
		},
		"tokens": {
			keep:    func(r *repeatRig, user string) { r.issues(token(r, user), tokenRequest("p"), big) },
			has:     func(r *repeatRig, user string) bool { return r.issued(token(r, user)) == big },
			flooder: accounts, flood: 290, victims: append(victims, "node"),
		},
		"reviews of accounts": {
			keep:    func(r *repeatRig, user string) { r.reviews(tokenReview(user), authenticated(tokenReview(user), user)) },
			has:     hasReview,
			flooder: accounts, flood: 1010, victims: victims,
		},
		"reviews of a user with the node's name": {
			keep: func(r *repeatRig, user string) {
				name, _, _ := strings.Cut(user, "/")
				r.reviews(tokenReview(user), authenticated(tokenReview(user), name))
			},
			has:     hasReview,
			flooder: func(i int) string { return fmt.Sprint("node/", i) }, flood: 1010, victims: victims,
		},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRepeatRig(t, ttl(time.Hour))
			for _, user := range tc.victims {
				tc.keep(r, user)
			}
			for i := range tc.flood {
				tc.keep(r, tc.flooder(i))
			}
			lost := 0
			for i := range tc.flood {
				if !tc.has(r, tc.flooder(i)) {
					lost++
				}
			}
			if lost == 0 {
				t.Error("the flood has lost nothing")
			}
			for range 2 {
				for _, user := range tc.victims {
					if !tc.has(r, user) {
						t.Errorf("%s has lost its own", user)
					}
				}
				r.restarts()
			}
		})
	}
}

// What is damaged counts as missing until it is answered again. Nothing else is lost.
func TestADamagedAnswerIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		r.online(read("/version"), http.StatusOK, "damaged")
		r.online(read("/api"), http.StatusOK, "whole")
		r.stop()
		flipObject(t, r.dir, "damaged")
		r.restarts()
		if got := r.offline(read("/version")) + ", " + r.offline(read("/api")); got != "none, 200 whole" {
			t.Error(got)
		}
		r.online(read("/version"), http.StatusOK, "damaged")
		if r.restarts(); r.offline(read("/version")) != "200 damaged" {
			t.Error("it is not there when it was answered again")
		}
	})
}

// Names of tables and their keys are not encrypted. They reveal nothing.
func TestAnEncryptedFileTellsNoQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t, ttl(time.Hour), func(o *Options) { o.Key = make([]byte, 32) })
		user := question{user: as(t.Context(), "planted-user"), url: "/apis/planted-group"}
		r.online(user, http.StatusOK, "planted-answer")
		r.issues(posts(t, urlToken, ofKubelet, tokenRequest("planted-pod")), tokenRequest("planted-pod"), theToken)
		may := accessReview("planted-reviewed", "get")
		r.reviews(may, allowed(may))
		r.stop()
		for _, text := range []string{"planted", theToken, "default"} {
			if found := filesWith(t, r.dir, text); len(found) > 0 {
				t.Errorf("%q have %s", found, text)
			}
		}
		if r.restarts(); r.offline(user) != "200 planted-answer" || !r.saysYes(may) {
			t.Error("nothing was stored")
		}
	})
}

func TestManyAskAtOnce(t *testing.T) {
	r := newRepeatRig(t, ttl(time.Hour))
	_, issued := encoded(t, "application/json", tokenRequest("p"))
	issued = strings.Replace(issued, `"token":""`, `"token":"t"`, 1)
	r.u.on("get", func(req *http.Request) *http.Response {
		switch req.URL.Path {
		case urlToken:
			return respond(http.StatusCreated, issued)
		case urlTokenReviews:
			return respond(http.StatusCreated, `{"status":{"authenticated":true,"user":{"username":"jane"}}}`)
		}
		return respond(http.StatusOK, "v")
	})
	token, review := posts(t, urlToken, "application/json", tokenRequest("p")), posts(t, urlTokenReviews, "application/json", tokenReview("t"))
	all := func() map[string]string {
		var mu sync.Mutex
		var each sync.WaitGroup
		got := map[string]string{}
		for i := range 20 {
			for _, q := range []question{read(fmt.Sprint("/apis/", i)), token, review} {
				each.Go(func() {
					_, body := r.asks(q)
					mu.Lock()
					defer mu.Unlock()
					got[q.url] = body
				})
			}
		}
		each.Wait()
		return got
	}
	all()
	r.u.goAway()
	for url, body := range all() {
		if !strings.Contains(body, `"token":"t"`) && !strings.Contains(body, `"authenticated":true`) && body != "v" {
			t.Errorf("%s: %s", url, body)
		}
	}
}

// No request gets what was answered to another question.
func FuzzWhatIsRepeated(f *testing.F) {
	u, o := newUpstream(), testOptions(f)
	o.AuthorizationTTL = time.Hour
	c, err := Open(f.TempDir(), u, o)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { c.Close() })
	ask := func(tb testing.TB, method, url, contentType, accept, tags, body string) string {
		like := newRequest(tb.Context(), method, url)
		req, err := http.NewRequestWithContext(like.Context(), method, like.URL.String(), strings.NewReader(body))
		if err != nil {
			tb.Fatal(err)
		}
		setHeader(req.Header, []string{"Content-Type", contentType, "Accept", accept, "If-None-Match", tags})
		res, err := c.RoundTrip(req)
		if err != nil {
			return "none"
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			tb.Fatal(err)
		}
		return fmt.Sprint(res.StatusCode, " ", string(text))
	}
	_, asked := encoded(f, protobuf, tokenReview(theToken))
	_, answered := encoded(f, "application/json", authenticated(tokenReview(theToken), "jane"))
	u.onText("get", http.StatusCreated, answered)
	ask(f, http.MethodPost, urlTokenReviews, protobuf, "", "", asked)
	u.on("get", func(*http.Request) *http.Response {
		res := respond(http.StatusOK, "x")
		setHeader(res.Header, []string{"Etag", `"1"`, "Content-Type", aggregated})
		return res
	})
	ask(f, http.MethodGet, "/apis", "", aggregated, "", "")
	u.goAway()
	if got := ask(f, http.MethodPost, urlTokenReviews, protobuf, "", "", asked); !strings.Contains(got, "jane") {
		f.Fatal(got)
	}
	f.Add(protobuf, ofKubelet, `W/"2", *`, asked)
	for _, object := range []runtime.Object{tokenRequest("p"), tokenReview("t"), accessReview("joe", "get")} {
		contentType, body := encoded(f, "application/json", object)
		f.Add(contentType, aggregatedV2, `"1"`, body)
	}
	f.Add("", "*/*;q=x,application/*;q=0.1", "", "{}")
	f.Fuzz(func(t *testing.T, contentType, accept, tags, body string) {
		if got := ask(t, http.MethodPost, urlToken, contentType, accept, "", body); strings.HasPrefix(got, "201") {
			t.Errorf("a token that nobody has issued: %s", got)
		}
		for _, url := range []string{urlTokenReviews, urlAccessReviews} {
			if got := ask(t, http.MethodPost, url, contentType, accept, "", body); strings.Contains(got, "jane") && !strings.Contains(body, theToken) && !strings.Contains(body, "jane") {
				t.Errorf("%q is answered with %s", body, got)
			}
		}
		if got := ask(t, http.MethodGet, "/apis", "", accept, tags, ""); got != "200 x" && got != "304 " && got != "none" {
			t.Errorf("Accept %q, If-None-Match %q: %s", accept, tags, got)
		}
	})
}
