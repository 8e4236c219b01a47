package cache

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/edgehub-io/edgehub/cache/view"
)

const (
	urlPodB = "/api/v1/namespaces/ns/pods/b"
	asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// tableAnswer answers with a table, in which a client may have seen any object.
func tableAnswer(*http.Request) *http.Response {
	res := respond(http.StatusOK, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"110"},"rows":[]}`)
	res.Header.Set("Content-Type", asTable)
	return res
}

// An answer in a form that is not cached may have been newer than the cached list.
func TestAListDoesNotProveThatObjectsOfATableAreGone(t *testing.T) {
	tests := map[string]func(*testing.T, *upstream, *Cache){
		"listed as a table": func(t *testing.T, u *upstream, c *Cache) {
			u.on("list", tableAnswer)
			ask(context.WithValue(t.Context(), acceptKey{}, asTable), t, c, http.MethodGet, urlPods)
		},
		"listed as a table, by label": func(t *testing.T, u *upstream, c *Cache) {
			u.on("list", tableAnswer)
			ask(context.WithValue(t.Context(), acceptKey{}, asTable), t, c, http.MethodGet, urlPods+"?labelSelector=l%3Dred")
		},
		"listed with a parameter that is not known": func(t *testing.T, u *upstream, c *Cache) {
			u.shows("110", podJSON("b", "110"))
			get(t, c, urlPods+"?unknown=1")
		},
		"read with a parameter that is not known": func(t *testing.T, u *upstream, c *Cache) {
			u.shows("110", podJSON("b", "110"))
			get(t, c, urlPodB+"?unknown=1")
		},
		"watched with a parameter that is not known": func(t *testing.T, u *upstream, c *Cache) {
			startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100&unknown=1")
			feed := <-u.feeds
			u.shows("104") // meanwhile the hub sees more, and then b comes
			get(t, c, urlPods)
			send(t, feed, podEvent("ADDED", "b", "110"))
		},
	}
	for name, see := range tests {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			if u.goAway(); get(t, c, urlPodB) != "404" {
				t.Fatal("the list does not prove that b is not there: this test shows nothing")
			}
			u.comeBack()
			see(t, u, c)
			synctest.Wait()
			u.goAway()
			if got := get(t, c, urlPodB); got == "404" {
				t.Errorf("offline: %q, and b was seen", got)
			}
			u.comeBack()
			u.shows("120", podJSON("a", "50"))
			get(t, c, urlPods)
			u.goAway()
			if got := get(t, c, urlPodB); got != "404" {
				t.Errorf("offline, after a later list without b: %q", got)
			}
		})
	}
}

// Versions of aggregated APIs may be anything, or missing: nothing of them can be ordered, and so nothing is kept.
func TestObjectsWithoutAVersionThatIsANumber(t *testing.T) {
	for _, version := range []string{"", "v7-abc", "0"} {
		bubble(t, "version "+version, func(t *testing.T) {
			u := newUpstream()
			u.shows(version, podJSON("a", version))
			u.onText("get", http.StatusOK, podJSON("a", version))
			c := startCache(t, u)
			get(t, c, urlPods)
			get(t, c, urlPodA)
			u.goAway()
			for _, url := range []string{urlPods, urlPodA} {
				if got := get(t, c, url); got != view.ErrNeverRead.Error() {
					t.Errorf("offline: %s is %q", url, got)
				}
			}
		})
	}
}
