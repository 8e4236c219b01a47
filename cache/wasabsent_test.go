package cache

import (
	"net/http"
	"testing"

	"github.com/edgehub-io/edgehub/cache/view"
)

// A list has proved that an object is gone. When the list cannot be served any more, an older copy
// is no answer, and neither is a 404.
func TestAnUnusableViewBringsBackNoDeletedObject(t *testing.T) {
	for name, close := range map[string]func(t *testing.T, u *upstream, c *Cache){
		"refused": func(t *testing.T, u *upstream, c *Cache) {
			u.onText("list", http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			get(t, c, urlPods)
		},
		"behind its clients": func(t *testing.T, u *upstream, c *Cache) {
			readMixedPages(t, u, c)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "90", podJSON("b", "51"))
			u.onText("get", http.StatusOK, podJSON("a", "50"))
			get(t, c, urlPodA)
			u.shows("100", podJSON("b", "51"))
			get(t, c, urlPods)
			close(t, u, c)
			u.goAway()
			expect(t, c, "offline", urlPodA, view.ErrDoubtful.Error()+": connection refused")
		})
	}
}
