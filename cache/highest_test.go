package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

const urlFoos = "/apis/example.com/v1/foos"

func fooJSON(version string) string {
	return fmt.Sprintf(`{"kind":"Foo","apiVersion":"example.com/v1","metadata":{"name":"x","resourceVersion":%q}}`, version)
}

func foosJSON(version, x string) string {
	return fmt.Sprintf(`{"kind":"FooList","apiVersion":"example.com/v1","metadata":{"resourceVersion":%q},"items":[%s]}`, version, fooJSON(x))
}

// notFoundPod is the answer of an apiserver for a pod that does not exist.
func notFoundPod(r *http.Request) *http.Response {
	name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	return respond(http.StatusNotFound, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":%q,"kind":"pods"}}`, name))
}

// Pod a does not exist at first, and is created later. In between another user is shown a version
// that no etcd has.
func TestAMadeUpVersionHidesNothing(t *testing.T) {
	tests := map[string]struct{ method, url, answer string }{
		"in a review that was posted": {
			http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{"name":"x","resourceVersion":"9223372036854775807"},"spec":{"token":"t"},"status":{}}`,
		},
		"in an access review that was posted": {
			http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			`{"kind":"SelfSubjectRulesReview","apiVersion":"authorization.k8s.io/v1","metadata":{"name":"x","resourceVersion":"9223372036854775807"}}`,
		},
		"of an apiserver that was aggregated": {
			http.MethodGet, "/apis/made-up.k8s.io/v1/foos/x",
			`{"kind":"Foo","apiVersion":"made-up.k8s.io/v1","metadata":{"name":"x","resourceVersion":"9223372036854775807"}}`,
		},
		"of the same resource": {
			http.MethodGet, "/api/v1/namespaces/ns/pods/x", podJSON("x", "18446744073709551615"),
		},
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "105", podJSON("b", "105"))
			code := http.StatusOK
			if test.method == http.MethodPost {
				code = http.StatusCreated
			}
			u.on("get", func(*http.Request) *http.Response { return respond(code, test.answer) })
			ask(as(t.Context(), "mallory.x"), t, c, test.method, test.url)
			u.on("get", notFoundPod)
			if got := get(t, c, urlPodA); got != "404" {
				t.Fatalf("a pod that is not there: %q", got)
			}
			u.shows("200", podJSON("a", "150"))
			get(t, c, urlPods)
			u.goAway()
			if got := get(t, c, urlPodA); got != "a=150" {
				t.Errorf("offline, a pod that was listed is %q", got)
			}
			if test.method == http.MethodPost && len(c.views.All()) > 1 {
				t.Error("an object that is not stored anywhere is kept")
			}
		})
	}
}

func TestARestoreOfAnotherStoreDropsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, foos := newUpstream(), foosJSON("500", "400")
		u.on("get", func(r *http.Request) *http.Response {
			switch r.URL.Path {
			case urlFoos:
				return respond(http.StatusOK, foos)
			case urlFoos + "/x":
				return respond(http.StatusOK, fooJSON("400"))
			}
			return respond(http.StatusOK, podJSON("a", "100"))
		})
		c := startCache(t, u)
		mallory, other := as(t.Context(), "mallory.x"), as(t.Context(), "other.x")
		get(t, c, urlPodA)
		ask(mallory, t, c, http.MethodGet, urlPodA)
		ask(mallory, t, c, http.MethodGet, urlFoos+"/x")
		ask(other, t, c, http.MethodGet, urlFoos+"/x")
		ask(other, t, c, http.MethodGet, urlFoos)
		ask(mallory, t, c, http.MethodGet, urlFoos)
		foos = foosJSON("3", "2")
		ask(mallory, t, c, http.MethodGet, urlFoos)
		synctest.Wait()
		u.goAway()
		if got := get(t, c, urlPodA); got != "a=100" {
			t.Errorf("the node's pod is %q", got)
		}
		if got := ask(mallory, t, c, http.MethodGet, urlPodA); got != "a=100" {
			t.Errorf("a pod of who saw the restore is %q", got)
		}
		if got := ask(other, t, c, http.MethodGet, urlFoos+"/x"); got != "x=400" {
			t.Errorf("what another user has read of the same apiserver is %q", got)
		}
		if got := ask(mallory, t, c, http.MethodGet, urlFoos+"/x"); got != "x=2" {
			t.Errorf("after the restore there is %q", got)
		}
	})
}
