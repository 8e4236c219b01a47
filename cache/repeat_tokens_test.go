package cache

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/edgehub-io/edgehub/cache/convert"
	"github.com/edgehub-io/edgehub/cache/repeat"
	"github.com/edgehub-io/edgehub/cache/view"
	"github.com/edgehub-io/edgehub/cache/wire"
)

const (
	urlToken  = "/api/v1/namespaces/ns/serviceaccounts/default/token"
	ofKubelet = "application/vnd.kubernetes.protobuf,application/json"
	theToken  = "eyJhbGciOi.the-secret-part.of-a-token"
	noToken   = "no such token was ever issued through this hub"
)

// encoded returns an object in the first encoding that accept allows.
func encoded(t testing.TB, accept string, object runtime.Object) (contentType, body string) {
	t.Helper()
	contentType, b, err := convert.EncodeBody(accept, object)
	if err != nil {
		t.Fatal(err)
	}
	return contentType, string(b)
}

// posts returns the POST of an object.
func posts(t testing.TB, url, accept string, object runtime.Object) question {
	t.Helper()
	contentType, body := encoded(t, accept, object)
	return question{method: http.MethodPost, url: url, body: body, header: []string{"Accept", accept, "Content-Type", contentType}}
}

// tokenRequest returns a kubelet's request for a projected volume of a pod.
func tokenRequest(pod string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:         []string{"a", "b"},
			ExpirationSeconds: new(int64(3607)),
			BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod, UID: "u"},
		},
	}
}

// issues lets the apiservers issue a token that has expired long ago.
func (r *repeatRig) issues(q question, asked *authenticationv1.TokenRequest, token string) {
	r.t.Helper()
	issued := asked.DeepCopy()
	issued.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.Unix(946684800, 0)}
	contentType, body := encoded(r.t, protobuf, issued)
	r.online(q, http.StatusCreated, body, "Content-Type", contentType)
}

// issued returns the token in the offline answer to a request, or why there is none.
func (r *repeatRig) issued(q question) string {
	r.t.Helper()
	res, body := r.offlineResponse(q)
	if res == nil || res.StatusCode != http.StatusCreated {
		return body
	}
	object, err := convert.DecodeBody(res.Header.Get("Content-Type"), []byte(body), wire.TypeMeta{})
	if err != nil {
		r.t.Fatal(err)
	}
	status := object.(*authenticationv1.TokenRequest).Status
	if status.ExpirationTimestamp.Unix() != 946684800 {
		r.t.Errorf("the expiry has changed: %s", status.ExpirationTimestamp)
	}
	return status.Token
}

func TestTheLastTokenIsGivenAgainForTheSameRequestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		asked := posts(t, urlToken, ofKubelet, tokenRequest("p"))
		r.issues(asked, tokenRequest("p"), "first")
		r.issues(asked, tokenRequest("p"), theToken)
		dry := asked
		dry.url += "?dryRun=All"
		r.issues(dry, tokenRequest("p"), "of a dry run")
		for range 2 {
			for _, accept := range []string{ofKubelet, "application/json"} {
				if got := r.issued(posts(t, urlToken, accept, tokenRequest("p"))); got != theToken {
					t.Errorf("Accept %q: %q", accept, got)
				}
			}
			r.restarts()
		}
		if got := r.offline(question{method: asked.method, url: urlToken, body: asked.body, header: append(asked.header, "Accept", "text/html")}); !strings.HasPrefix(got, "406") {
			t.Errorf("in neither encoding: %s", got)
		}
		for name, tc := range map[string]struct {
			change func(*authenticationv1.TokenRequest)
			url    string
			want   string
		}{
			"another lifetime":              {change: func(r *authenticationv1.TokenRequest) { r.Spec.ExpirationSeconds = nil }, want: theToken},
			"audiences in another order":    {change: func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = []string{"b", "a"} }, want: theToken},
			"one audience less":             {change: func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = []string{"a"} }},
			"audiences cut elsewhere":       {change: func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = []string{"ab"} }},
			"no audiences":                  {change: func(r *authenticationv1.TokenRequest) { r.Spec.Audiences = nil }},
			"another pod of the same name":  {change: func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.UID = "other" }},
			"another pod":                   {change: func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.Name = "q" }},
			"a secret":                      {change: func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef.Kind = "Secret" }},
			"bound to nothing":              {change: func(r *authenticationv1.TokenRequest) { r.Spec.BoundObjectRef = nil }},
			"a service account's other UID": {change: func(r *authenticationv1.TokenRequest) { r.UID = "u" }},
			"another namespace":             {url: "/api/v1/namespaces/other/serviceaccounts/default/token"},
			"another service account":       {url: "/api/v1/namespaces/ns/serviceaccounts/admin/token"},
		} {
			other := tokenRequest("p")
			if tc.change != nil {
				tc.change(other)
			}
			if tc.url == "" {
				tc.url = urlToken
			}
			if tc.want == "" {
				tc.want = noToken
			}
			if got := r.issued(posts(t, tc.url, ofKubelet, other)); got != tc.want {
				t.Errorf("%s: %q", name, got)
			}
		}
		asked.user = as(t.Context(), "eve")
		r.online(asked, http.StatusForbidden, "")
		if got := r.issued(asked); got != noToken {
			t.Errorf("another user: %q", got)
		}
	})
}

func TestTokensThatAreNotUsedAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		unused, used := posts(t, urlToken, ofKubelet, tokenRequest("unused")), posts(t, urlToken, ofKubelet, tokenRequest("used"))
		r.issues(unused, tokenRequest("unused"), "token")
		r.issues(used, tokenRequest("used"), "token")
		for range 2 {
			r.stop()
			time.Sleep(250 * 24 * time.Hour)
			r.restarts()
			if got := r.issued(used); got != "token" {
				t.Errorf("used after 250 days: %q", got)
			}
		}
		if got := r.issued(unused); got != noToken {
			t.Errorf("after 500 days unused: %q", got)
		}
	})
}

// What cannot be read, or has no token, leaves what was issued. No error quotes a body.
func TestAnswersWithoutATokenAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		r := newRepeatRig(t, logsTo(&logged))
		asked := posts(t, urlToken, ofKubelet, tokenRequest("p"))
		issued := tokenRequest("p")
		issued.Status.Token = theToken
		answerType, answer := encoded(t, "application/json", issued)
		r.issues(asked, tokenRequest("p"), "good")
		for name, tc := range map[string]struct{ contentType, answer string }{
			"cut short":             {answerType, answer[:len(answer)-4]},
			"a wrong type":          {answerType, strings.Replace(answer, `"status":{`, `"status":"`+theToken+`","x":{`, 1)},
			"the token itself":      {answerType, theToken},
			"YAML":                  {"application/yaml", answer},
			"another kind":          {answerType, strings.Replace(answer, "TokenRequest", "TokenReview", 1)},
			"a kind without a name": {answerType, strings.Replace(answer, "TokenRequest", theToken, 1)},
			"no token":              {"application/json", "{}"},
			"an enormous answer":    {answerType, answer + strings.Repeat(" ", 1<<17)},
		} {
			r.online(asked, http.StatusCreated, tc.answer, "Content-Type", tc.contentType)
			if got := r.issued(asked); got != "good" {
				t.Errorf("after %s: %q", name, got)
			}
		}
		broken := asked
		broken.body = `{"spec":"` + theToken
		broken.header = []string{"Content-Type", "application/json"}
		r.online(broken, http.StatusCreated, answer)
		if got := r.issued(broken); got != noToken {
			t.Errorf("a request that cannot be read: %q", got)
		}
		r.stop()
		if text := logged.String(); strings.Contains(text, "secret-part") || strings.Count(text, "an answer was passed on and not kept") < 9 {
			t.Errorf("the log has a token, or lacks an error:\n%s", text)
		}
	})
}

// The node's tokens have bounds of their own, and lose none to others.
func TestTheNodesTokensAreBoundedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		ask := func(user string, i int) question {
			q := posts(t, urlToken, ofKubelet, tokenRequest(strconv.Itoa(i)))
			if user != "" {
				q.user = as(t.Context(), user)
			}
			return q
		}
		const of16MiB = 270
		token := strings.Repeat("x", 60_000)
		for i := range of16MiB {
			r.issues(ask("", i), tokenRequest(strconv.Itoa(i)), token)
		}
		for i := range of16MiB + 20 {
			r.issues(ask("jane", i), tokenRequest(strconv.Itoa(i)), token)
		}
		for i := range of16MiB {
			if got := r.issued(ask("", i)); got != token {
				t.Fatalf("the node's token %d: %q", i, got)
			}
		}
		if first, last := r.issued(ask("jane", 0)), r.issued(ask("jane", of16MiB+19)); first != noToken || last != token {
			t.Errorf("jane's first is %.60q, and the last %.60q", first, last)
		}
		for i := range 20 {
			r.issues(ask("", of16MiB+i), tokenRequest(strconv.Itoa(of16MiB+i)), token)
		}
		if got := r.issued(ask("", 0)); got != noToken {
			t.Errorf("beyond its bound, the node's first is %.60q", got)
		}
	})
}

// kubelet renews a token before its pod uses it, and some pods seldom do. A token for audiences goes to services, which must
// not read as its user.
func TestWhoseAnIssuedTokenIsIsKnownBeforeItsFirstUse(t *testing.T) {
	const account = "system:serviceaccount:ns:default"
	token := "h." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+account+
		`","kubernetes.io":{"namespace":"ns","serviceaccount":{"name":"default","uid":"u-`+account+`"}}}`)) + ".s"
	for name, tc := range map[string]struct {
		audiences []string
		url       string
		known     bool
	}{
		"for the apiserver": {url: urlToken, known: true},
		"for audiences":     {url: urlToken, audiences: []string{"vault"}},
		"of a dry run":      {url: urlToken + "?dryRun=All"},
		"for another name":  {url: "/api/v1/namespaces/ns/serviceaccounts/other/token"},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRepeatRig(t)
			r.u.on("review", reviewed(http.StatusCreated, account))
			asked := tokenRequest("p")
			asked.Spec.Audiences = tc.audiences
			r.issues(posts(t, tc.url, ofKubelet, asked), asked, token)
			for range 2 {
				r.u.goAway()
				if known := ask(as(t.Context(), token), t, r.c, http.MethodGet, urlPods) == view.ErrNeverRead.Error(); known != tc.known {
					t.Errorf("offline, its holder is known: %t", known)
				}
				r.u.comeBack()
				r.restarts()
				r.online(read("/version"), http.StatusOK, "{}")
				time.Sleep(2 * repeat.Within)
			}
		})
	}
}
