package cache

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/edgehub-io/edgehub/cache/store"
)

// Objects that are gone or refused stay so if the disk loses their records: no object is served
// that a lost record may have been about.
func TestLostRecordsBringBackNoDeletedObject(t *testing.T) {
	forbidden := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	for what, learn := range map[string]func(*testing.T, *upstream, *Cache){
		"a deletion": func(t *testing.T, u *upstream, c *Cache) {
			u.onText("delete", http.StatusOK, `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"a","kind":"pods","uid":"u-a"}}`)
			ask(t.Context(), t, c, http.MethodDelete, urlPodA)
		},
		"a refusal": func(t *testing.T, u *upstream, c *Cache) {
			u.onText("get", http.StatusForbidden, forbidden)
			get(t, c, urlPodA)
		},
	} {
		bubble(t, what, func(t *testing.T) {
			u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
			c, stop := runIn(t, dir, u)
			u.onText("get", http.StatusForbidden, forbidden)
			u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
			get(t, c, urlPods)
			get(t, c, urlPodA)
			restart := func() {
				stop()
				c, stop = runIn(t, dir, u)
			}
			restart()
			learn(t, u, c)
			stop()
			flipObject(t, dir, `"ns/a"`)
			u.goAway()
			for range 2 { // what follows is on disk, too
				restart()
				if got := get(t, c, urlPodA); strings.HasPrefix(got, "a=") || got == "404" {
					t.Fatalf("without the record, the pod is read as %q", got)
				}
				if got, want := get(t, c, urlPods), "100: a=50 b=51"; got != want {
					t.Errorf("the list is %q, want %q", got, want)
				}
			}
			u.comeBack()
			u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
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

// After the salt was lost, no records remain under keys that cannot be found any more.
func TestRecordsOfAnotherSaltAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		u.shows("100", podJSON("a", "50"))
		c, stop := runIn(t, dir, u)
		get(t, c, urlPods)
		u.onText("get", http.StatusForbidden, "{}")
		get(t, c, urlPodA)
		stop()
		s, err := store.Open(dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = s.Commit(store.Batch{Pairs: []store.Pair{{Table: "salts", Key: "records"}}})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		c, stop = runIn(t, dir, u)
		u.shows("100", podJSON("a", "50"))
		get(t, c, urlPodA) // it is let in again
		stop()
		u.goAway()
		c = startIn(t, dir, u)
		if got := get(t, c, urlPodA); got != "a=50" {
			t.Errorf("what was let in again is read as %q", got)
		}
	})
}
