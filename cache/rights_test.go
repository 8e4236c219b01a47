package cache

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/repeat"
	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	statusYes   = `{"status":{"allowed":true}}`
	statusNo    = `{"status":{"allowed":false}}`
	statusError = `{"status":{"allowed":false,"evaluationError":"the webhook timed out"}}`
)

// says answers SelfSubjectAccessReviews of one user by their verb; others are answered with yes.
func says(user string, byVerb map[string]string) answerFunc {
	return func(r *http.Request) *http.Response {
		verb := questionOf(r).Verb
		if r.Header.Get("Authorization") != "Bearer "+user || byVerb[verb] == "" {
			return respond(http.StatusCreated, statusYes)
		}
		return respond(http.StatusCreated, byVerb[verb])
	}
}

// questionOf returns what a SelfSubjectAccessReview asks for.
func questionOf(r *http.Request) *authorizationv1.ResourceAttributes {
	var asked authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		panic(err)
	}
	return asked.Spec.ResourceAttributes
}

// long is how long a right may last that was taken away, if not too many wait.
const long = repeat.After + repeat.Again + 4*repeat.Idle

// A reader that never asks again gets no 403. What it may not read any more is not served to it without the cloud.
func TestARightThatWasTakenAwayIsNotServed(t *testing.T) {
	const list, object = "100: a=50", "a=50"
	denied := view.ErrDenied.Error()
	all := func(status string) answerFunc {
		return says("jane", map[string]string{"get": status, "list": status, "watch": status})
	}
	code := func(code int) answerFunc {
		return func(*http.Request) *http.Response { return respond(code, "{}") }
	}
	for name, tc := range map[string]struct {
		answer       answerFunc
		list, object string // offline
	}{
		"the right is there":                     {all(statusYes), list, object},
		"the right was taken away":               {all(statusNo), denied, denied},
		"an authorizer denies":                   {all(`{"status":{"allowed":true,"denied":true}}`), denied, denied},
		"an authorizer could not decide":         {all(statusError), list, object},
		"only objects may not be read":           {says("jane", map[string]string{"get": statusNo}), list, denied},
		"it may not be listed, but watched":      {says("jane", map[string]string{"list": statusNo}), list, object},
		"neither listed nor watched":             {says("jane", map[string]string{"list": statusNo, "watch": statusNo}), denied, object},
		"nobody knows whether it may be watched": {says("jane", map[string]string{"list": statusNo, "watch": statusError}), list, object},
		"the review is refused":                  {code(http.StatusForbidden), list, object},
		"too many requests":                      {code(http.StatusTooManyRequests), list, object},
		"an apiserver that fails":                {code(http.StatusInternalServerError), list, object},
		"no apiserver answers":                   {func(*http.Request) *http.Response { return nil }, list, object},
		"it cannot be read":                      {func(*http.Request) *http.Response { return respond(http.StatusCreated, "no JSON") }, list, object},
	} {
		bubble(t, name, func(t *testing.T) {
			u, dir := newUpstream(), t.TempDir()
			u.shows("100", podJSON("a", "50"))
			u.on("access", tc.answer)
			c, stop := runIn(t, dir, u)
			jane, other := as(t.Context(), "jane"), as(t.Context(), "coredns")
			for _, user := range []context.Context{jane, other, t.Context()} {
				for _, url := range []string{urlPods, urlPodA} {
					ask(user, t, c, http.MethodGet, url)
				}
			}
			time.Sleep(long)
			u.goAway()
			for _, when := range []string{"offline", "offline, and after a restart"} {
				for who, user := range map[string]context.Context{"another user": other, "the node": t.Context()} {
					if gotList, gotObject := ask(user, t, c, http.MethodGet, urlPods), ask(user, t, c, http.MethodGet, urlPodA); gotList != list || gotObject != object {
						t.Errorf("%s, %s reads %q and %q", when, who, gotList, gotObject)
					}
				}
				if got := ask(jane, t, c, http.MethodGet, urlPods); got != tc.list {
					t.Errorf("%s, the list: %q, want %q", when, got, tc.list)
				}
				if got := ask(jane, t, c, http.MethodGet, urlPodA); got != tc.object {
					t.Errorf("%s, the object: %q, want %q", when, got, tc.object)
				}
				stop()
				c, stop = runIn(t, dir, u)
			}
		})
	}
}

// One no counts for nothing, nor does one that came before the reader was served again.
func TestANoThatDoesNotLastCountsForNothing(t *testing.T) {
	const object = "a=50"
	for name, tc := range map[string]struct {
		answer func(t *testing.T, c *Cache, n int) string // to the n-th question
		want   string
	}{
		"once": {func(_ *testing.T, _ *Cache, n int) string {
			return map[bool]string{true: statusNo, false: statusYes}[n == 1]
		}, object},
		"now and then": {func(_ *testing.T, _ *Cache, n int) string {
			return map[bool]string{true: statusNo, false: statusYes}[n%2 == 1]
		}, object},
		"twice, and served meanwhile": {func(t *testing.T, c *Cache, n int) string {
			t.Helper()
			if n == 2 {
				time.Sleep(time.Second)
				ask(as(t.Context(), "jane"), t, c, http.MethodGet, urlPodA)
			}
			return statusNo
		}, object},
		"twice": {func(*testing.T, *Cache, int) string { return statusNo }, view.ErrDenied.Error()},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c := startCache(t, u)
			var n atomic.Int32
			u.on("access", func(*http.Request) *http.Response {
				return respond(http.StatusCreated, tc.answer(t, c, int(n.Add(1))))
			})
			jane := as(t.Context(), "jane")
			get(t, c, urlPods)
			ask(jane, t, c, http.MethodGet, urlPodA)
			time.Sleep(long)
			u.goAway()
			if got := ask(jane, t, c, http.MethodGet, urlPodA); got != tc.want {
				t.Errorf("after %d questions: %q, want %q", n.Load(), got, tc.want)
			}
		})
	}
}

// Who asks itself is authorized by that. The others' rights are asked for every ten minutes, and not all at once.
func TestWhichRightsAreAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		u.on("access", says("", nil))
		c := startCache(t, u)
		get(t, c, urlPods)
		active := as(t.Context(), "informer")
		ask(active, t, c, http.MethodGet, urlPods)
		const urlEvent = "/api/v1/namespaces/ns/events/e"
		u.on("get", func(r *http.Request) *http.Response {
			if r.URL.Path == urlEvent {
				return respond(http.StatusOK, `{"kind":"Event","apiVersion":"v1","metadata":{"name":"e","namespace":"ns","resourceVersion":"50"}}`)
			}
			return respond(http.StatusOK, podJSON("a", "50"))
		})
		if got := ask(active, t, c, http.MethodPatch, urlEvent); got != "e=50" { // its own, which it never reads
			t.Fatal(got)
		}
		for range 12 {
			ask(active, t, c, http.MethodGet, urlPodA)
			w := startWatch(active, t, c, urlWatch+"&resourceVersion=100")
			time.Sleep(5 * time.Minute)
			w.stop()
		}
		if n := u.count("access"); n != 0 {
			t.Errorf("%d questions about one who asks itself", n)
		}
		const readers = 20
		for i := range readers {
			ask(as(t.Context(), fmt.Sprint("idle", i)), t, c, http.MethodGet, urlPodA)
		}
		time.Sleep(repeat.After + 2*repeat.Idle + readers*2*repeat.RightsPause)
		asked := u.all("access")
		if len(asked) < readers || len(asked) > readers+2 { // and the informer's, which is idle now
			t.Errorf("%d questions about %d rights", len(asked), readers)
		}
		for i := range asked[1:] {
			if pause := asked[i+1].at.Sub(asked[i].at); pause < repeat.RightsPause/2 {
				t.Errorf("%v between two questions", pause)
			}
		}
		time.Sleep(time.Hour)
		if n := u.count("access"); n > 8*(readers+2) {
			t.Errorf("%d questions in 72 minutes", n)
		}
	})
}

// Without a token that is good nobody can ask. An apiserver in trouble is asked once for each user.
func TestWithWhichTokensRightsAreAskedFor(t *testing.T) {
	until := func(expires time.Time) string {
		return "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix())) + ".s"
	}
	for name, tc := range map[string]struct {
		expires, restart bool
		code, questions  int
		want             string
	}{
		"the token has expired":              {expires: true, want: "a=50"},
		"the token is on disk only":          {restart: true, want: "a=50"},
		"too many requests":                  {code: http.StatusTooManyRequests, questions: 1, want: "a=50"},
		"the token is refused":               {code: http.StatusUnauthorized, questions: 1, want: identity.ErrUnknown.Error()},
		"the token is good, and may do less": {code: http.StatusCreated, questions: 4, want: view.ErrDenied.Error()},
	} {
		bubble(t, name, func(t *testing.T) {
			u, dir := newUpstream(), t.TempDir()
			u.shows("100", podJSON("a", "50"), podJSON("b", "50"))
			u.on("access", func(*http.Request) *http.Response {
				if tc.code == http.StatusUnauthorized {
					u.on("review", reviewed(http.StatusUnauthorized, ""))
				}
				return respond(tc.code, statusNo)
			})
			c, stop := runIn(t, dir, u)
			expires := time.Now().Add(time.Hour)
			if tc.expires {
				expires = time.Now().Add(5 * time.Minute)
			}
			jane := as(t.Context(), until(expires))
			get(t, c, urlPods)
			for range 2 { // so that the token itself is asked for before
				for _, url := range []string{urlPodA, "/api/v1/namespaces/ns/pods/b"} {
					ask(jane, t, c, http.MethodGet, url)
				}
				time.Sleep(repeat.After / 2)
			}
			if tc.restart {
				stop()
				c, _ = runIn(t, dir, u)
				get(t, c, urlPods)
			}
			time.Sleep(long - repeat.After/2 - repeat.Idle)
			u.goAway()
			if got := ask(jane, t, c, http.MethodGet, urlPodA); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if n := u.count("access"); n != tc.questions {
				t.Errorf("%d questions, want %d", n, tc.questions)
			}
		})
	}
}

// Nobody keeps what it may not read any more by having read too much to be asked for.
func TestWhatTooManyRightsKeepFromBeingAskedForIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		u.on("get", func(r *http.Request) *http.Response {
			return respond(http.StatusOK, podJSON(path.Base(r.URL.Path), "50"))
		})
		u.on("access", says("", nil))
		c := startCache(t, u)
		get(t, c, urlPods)
		of := func(namespace string) context.Context {
			name := "system:serviceaccount:" + namespace + ":a"
			return as(t.Context(), name)
		}
		const most = 1000
		for i := range most {
			ask(of("flood"), t, c, http.MethodGet, fmt.Sprintf("/api/v1/namespaces/ns/pods/p%d", i))
		}
		ask(of("victims"), t, c, http.MethodGet, urlPodA)
		time.Sleep(repeat.Within + 3*repeat.Idle)
		u.goAway()
		var served int
		for i := range most {
			if ask(of("flood"), t, c, http.MethodGet, fmt.Sprintf("/api/v1/namespaces/ns/pods/p%d", i)) == fmt.Sprintf("p%d=50", i) {
				served++
			}
		}
		if served > most*95/100 || served < most/2 {
			t.Errorf("%d of %d are served, of which not all can have been asked for", served, most)
		}
		if got := ask(of("victims"), t, c, http.MethodGet, urlPodA); got != "a=50" {
			t.Errorf("another reads %q", got)
		}
	})
}

func TestWhatAReviewAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.on("list", func(r *http.Request) *http.Response {
			kind := map[string]string{"pods": "Pod", "secrets": "Secret", "namespaces": "Namespace"}[path.Base(r.URL.Path)]
			return respond(http.StatusOK, fmt.Sprintf(`{"kind":"%sList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[]}`, kind))
		})
		u.on("get", func(r *http.Request) *http.Response {
			return respond(http.StatusOK, fmt.Sprintf(`{"kind":"K","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"50"}}`, path.Base(r.URL.Path)))
		})
		asked := map[string]bool{}
		u.on("access", func(r *http.Request) *http.Response {
			text, err := json.Marshal(questionOf(r))
			if err != nil {
				t.Error(err)
			}
			asked[string(text)] = true
			return respond(http.StatusCreated, statusYes)
		})
		c := startCache(t, u)
		get(t, c, "/api/v1/nodes/n")
		want := map[string]string{
			"/api/v1/namespaces/ns/secrets": `{"namespace":"ns","verb":"list","version":"v1","resource":"secrets"}`,
			"/api/v1/namespaces":            `{"verb":"list","version":"v1","resource":"namespaces"}`,

			"/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Ds":    `{"namespace":"ns","verb":"list","version":"v1","resource":"secrets","name":"s","fieldSelector":{"rawSelector":"metadata.name=s"}}`,
			"/api/v1/pods?labelSelector=a%3Db&fieldSelector=spec.nodeName%3Dn": `{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"rawSelector":"spec.nodeName=n"},"labelSelector":{"rawSelector":"a=b"}}`,
			"/api/v1/pods?fieldSelector=metadata.name%3Da%2Fb":                 `{"verb":"list","version":"v1","resource":"pods","fieldSelector":{"rawSelector":"metadata.name=a/b"}}`,
			"/api/v1/namespaces/ns/secrets/s":                                  `{"namespace":"ns","verb":"get","version":"v1","resource":"secrets","name":"s"}`,
			"/api/v1/namespaces/ns":                                            `{"namespace":"ns","verb":"get","version":"v1","resource":"namespaces","name":"ns"}`,
			"/apis/example.com/v1/namespaces/ns":                               `{"verb":"get","group":"example.com","version":"v1","resource":"namespaces","name":"ns"}`,
			"/api/v1/nodes/n":                                                  `{"verb":"get","version":"v1","resource":"nodes","name":"n"}`,
		}
		for url := range want {
			if got := ask(as(t.Context(), "jane"), t, c, http.MethodGet, url); strings.HasPrefix(got, "4") {
				t.Fatalf("%s: %s", url, got)
			}
		}
		time.Sleep(long)
		synctest.Wait()
		for url, question := range want {
			if !asked[question] {
				t.Errorf("%s: not asked for by %s", url, question)
			}
			delete(asked, question)
		}
		if len(asked) > 0 {
			t.Errorf("besides, %v was asked", asked)
		}
	})
}
