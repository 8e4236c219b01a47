package cache

import (
	"net/http"
	"testing"

	"github.com/edgehub-io/edgehub/cache/query"
)

// An object that is known to be gone takes no room from others.
func TestAnObjectThatIsGoneIsNoSingleObject(t *testing.T) {
	u := newUpstream()
	u.shows("100", podJSON("a", "50"), podJSON("b", "60"))
	c := startCache(t, u)
	get(t, c, urlPodA)
	get(t, c, urlPodB)
	u.onText("delete", http.StatusOK, podJSON("a", "105"))
	ask(t.Context(), t, c, http.MethodDelete, urlPodA)
	key := podsKey(query.NodeUser)
	key.Single = true
	v := c.views.find(key)
	if e, ok := v.member("ns/b"); !ok || e.version != "60" || v.isComplete() {
		t.Errorf("ns/b is there: %v, at %q", ok, e.version)
	}
	if _, ok := v.member("ns/a"); ok {
		t.Error("ns/a is there")
	}
	u.goAway()
	if a, b := get(t, c, urlPodA), get(t, c, urlPodB); a != "404" || b != "b=60" {
		t.Errorf("offline: %q and %q", a, b)
	}
}
