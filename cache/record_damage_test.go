package cache

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// Objects that are gone or refused stay so if the disk loses their records: no object is served
// that a lost record may have been about.
func TestLostRecordsBringBackNoDeletedObject(t *testing.T) {
	forbidden := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	for what, tc := range map[string]struct {
		text  string // of the commit
		learn func(*testing.T, *upstream, *Cache)
	}{
		"a deletion": {`"gone"`, func(t *testing.T, u *upstream, c *Cache) {
			u.onText("delete", http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"a","kind":"pods","uid":"u-a"}}`)
			ask(t.Context(), t, c, http.MethodDelete, urlPodA)
		}},
		"a refusal": {`"refused"`, func(t *testing.T, u *upstream, c *Cache) {
			u.onText("get", http.StatusForbidden, forbidden)
			get(t, c, urlPodA)
		}},
	} {
		bubble(t, what, func(t *testing.T) {
			u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
			c, stop := runIn(t, dir, u)
			u.onText("get", http.StatusForbidden, forbidden)
			u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
			get(t, c, urlPods)
			get(t, c, urlRed)
			restart := func() {
				stop()
				c, stop = runIn(t, dir, u)
				synctest.Wait() // a file that lacks commits is replaced at once
			}
			restart()
			tc.learn(t, u, c)
			restart()
			u.shows("101", podJSON("a", "50"), podJSON("b", "51"))
			get(t, c, urlPods) // without a later commit, nobody knows that one is lost
			stop()
			flipObject(t, dir, tc.text)
			u.goAway()
			for range 2 { // what follows is on disk, too
				restart()
				if got := get(t, c, urlPodA); strings.HasPrefix(got, "a=") || got == "404" {
					t.Fatalf("without the commit, the pod is read as %q", got)
				}
				expect(t, c, "a list that was read later", urlPods, "101: a=50 b=51")
				if got := get(t, c, urlRed); strings.HasPrefix(got, "100:") {
					t.Errorf("an earlier list is %q, and may lack what the commit had", got)
				}
			}
			u.comeBack()
			u.onText("get", http.StatusOK, podJSON("b", "51"))
			get(t, c, modelURL("b"))
			u.goAway()
			for range 2 {
				if got := get(t, c, modelURL("b")); got != "b=51" {
					t.Errorf("what was read again is read as %q", got)
				}
				restart()
			}
		})
	}
}
