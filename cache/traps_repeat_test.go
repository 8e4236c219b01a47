package cache

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An apiserver's answer to a TokenReview has the token in it. No file of the hub has, and what was answered is repeated.
func TestTheTokenOfAReviewIsInNoFile(t *testing.T) {
	const token, callers = "planted.by.a-test", "planted.as-a-bearer"
	const url, spec = "/apis/authentication.k8s.io/v1/tokenreviews", `{"token":"` + token + `"}`
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		u.shows("100", podJSON("a", "50"))
		u.onText("get", http.StatusCreated, `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{},"spec":`+spec+`,"status":{"authenticated":true,"user":{"username":"jane"}}}`)
		ttl := func(o *Options) { o.AuthorizationTTL = time.Hour }
		c, stop := runIn(t, dir, u, ttl)
		askReview(t.Context(), t, c, url, spec)
		ask(as(t.Context(), callers), t, c, http.MethodGet, urlPods)
		time.Sleep(time.Minute)
		u.goAway()
		for range 2 {
			if got := askReview(t.Context(), t, c, url, spec); !strings.Contains(got, `"authenticated":true`) {
				t.Errorf("offline, the review is answered with %s", got)
			}
			if got := ask(as(t.Context(), callers), t, c, http.MethodGet, urlPods); got != "100: a=50" {
				t.Errorf("offline, who has a token reads %q", got)
			}
			for _, secret := range []string{token, callers} {
				if found := filesWith(t, dir, secret); len(found) > 0 {
					t.Errorf("%q have the token", found)
				}
			}
			stop()
			c, stop = runIn(t, dir, u, ttl)
		}
	})
}

// Boards without a battery boot in 1970. What was read last stays, and not what has the latest time.
func TestAClockThatIsSetBackEvictsNoneOfTheNewestAnswers(t *testing.T) {
	const bound = 1000
	dir := filepath.Join(t.TempDir(), "cache")
	reads := func(t *testing.T, c *Cache, path string) string {
		t.Helper()
		body, err := readBody(t.Context(), t, c, path)
		if err != nil {
			return err.Error()
		}
		return string(body)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * 365 * 24 * time.Hour)
		u := newUpstream()
		u.onText("get", http.StatusOK, `{"gitVersion":"old"}`)
		c, stop := runIn(t, dir, u)
		for i := range bound {
			reads(t, c, fmt.Sprintf("/apis/g%d/v1", i))
		}
		stop()
	})
	synctest.Test(t, func(t *testing.T) { // 20 years earlier
		u := newUpstream()
		u.onText("get", http.StatusOK, `{"gitVersion":"new"}`)
		c := startIn(t, dir, u)
		for i := range 3 {
			reads(t, c, fmt.Sprintf("/apis/new%d/v1", i))
		}
		u.goAway()
		for i := range 3 {
			if got := reads(t, c, fmt.Sprintf("/apis/new%d/v1", i)); got != `{"gitVersion":"new"}` {
				t.Errorf("offline, what was read last is %q", got)
			}
		}
	})
}
