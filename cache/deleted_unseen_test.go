package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/edgehub-io/edgehub/cache/view"
)

// Pods that were read by GET are gone if a list of their node lacks them, even if the list before
// was evicted.
func TestPodsMissingFromTheListOfANodeAreGone(t *testing.T) {
	on := func(node, name, version string) string {
		return strings.Replace(podJSON(name, version), `"metadata"`, fmt.Sprintf(`"spec":{"nodeName":%q},"metadata"`, node), 1)
	}
	const here = urlPods + "?fieldSelector=spec.nodeName%3Dhere"
	for what, evict := range map[string]bool{"the list was kept": false, "the list was evicted": true} {
		gone := "404"
		if evict { // how long after the copy the pod was there is not known
			gone = view.ErrDoubtful.Error() + ": connection refused"
		}
		bubble(t, what, func(t *testing.T) {
			u := newUpstream()
			a, b, elsewhere := on("here", "a", "50"), on("here", "b", "51"), on("elsewhere", "c", "52")
			u.shows("100", a, b, elsewhere)
			u.onText("list", http.StatusOK, podsJSON("100", a, b))
			c := startCache(t, u)
			get(t, c, here)
			for _, name := range []string{"a", "b", "c"} {
				get(t, c, modelURL(name))
			}
			if evict {
				for _, v := range c.views.All() {
					c.views.Evict(v)
				}
			}
			u.onText("list", http.StatusOK, podsJSON("110", b))
			get(t, c, here)
			u.goAway()
			for name, want := range map[string]string{"a": gone, "b": "b=51", "c": "c=52"} {
				if got := get(t, c, modelURL(name)); got != want {
					t.Errorf("offline, pod %s is read as %q, want %q", name, got, want)
				}
			}
		})
	}
}
