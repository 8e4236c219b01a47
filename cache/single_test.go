package cache

import (
	"net/http"
	"testing"

	"github.com/edgehub-io/edgehub/cache/query"
)

// An object that is known to be gone must not take the place of others.
func TestAGoneObjectIsRemovedFromItsSingleView(t *testing.T) {
	u := newUpstream()
	u.shows("100", podJSON("a", "50"), podJSON("b", "60"))
	c := startCache(t, u)
	get(t, c, urlPodA)
	get(t, c, urlPodB)
	u.onText("delete", http.StatusOK, podJSON("a", "105"))
	ask(t.Context(), t, c, http.MethodDelete, urlPodA)
	key := podsKey(query.NodeUser)
	key.Single = true
	v := c.views.Find(key)
	if e, ok := v.Member("ns/b"); !ok || e.Version != "60" || v.IsComplete() {
		t.Errorf("ns/b is there: %v, at %q", ok, e.Version)
	}
	if _, ok := v.Member("ns/a"); ok {
		t.Error("ns/a is there")
	}
	u.goAway()
	if a, b := get(t, c, urlPodA), get(t, c, urlPodB); a != "404" || b != "b=60" {
		t.Errorf("offline: %q and %q", a, b)
	}
}
