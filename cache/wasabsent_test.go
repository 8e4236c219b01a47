package cache

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/edgehub-io/edgehub/cache/view"
)

// What a list has shown not to be there stays away when the list may not be answered with any
// more: an older copy of it is no answer. Neither is that it is not there.
func TestAViewThatMayNotAnswerBringsNothingBack(t *testing.T) {
	for name, close := range map[string]func(t *testing.T, u *upstream, c *Cache){
		"refused": func(t *testing.T, u *upstream, c *Cache) {
			u.onText("list", http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			get(t, c, urlPods)
		},
		"behind its clients": func(t *testing.T, u *upstream, c *Cache) {
			u.onText("list", http.StatusServiceUnavailable, "{}")
			startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=110")
			send(t, <-u.feeds, podEvent("MODIFIED", "b", "120"))
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				u, c := startListed(t, "90", podJSON("b", "51"))
				u.onText("get", http.StatusOK, podJSON("a", "50"))
				get(t, c, urlPodA)
				u.shows("100", podJSON("b", "51"))
				get(t, c, urlPods)
				close(t, u, c)
				u.goAway()
				expect(t, c, "offline", urlPodA, view.ErrDoubtful.Error()+": connection refused")
			})
		})
	}
}
