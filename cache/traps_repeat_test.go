package cache

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// An apiserver's answer to a TokenReview has the token in it. No file of the hub has, and what was answered is repeated.
func TestTheTokenOfAReviewIsInNoFile(t *testing.T) {
	const token, callers = "planted.by.a-test", "planted.as-a-bearer"
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t, ttl(time.Hour))
		r.u.shows("100", podJSON("a", "50"))
		r.reviews(tokenReview(token), authenticated(tokenReview(token), "jane"))
		ask(as(t.Context(), callers), t, r.c, http.MethodGet, urlPods)
		time.Sleep(time.Minute)
		r.u.goAway()
		for range 2 {
			if !r.saysYes(tokenReview(token)) {
				t.Error("offline, the review is answered with no")
			}
			if got := ask(as(t.Context(), callers), t, r.c, http.MethodGet, urlPods); got != "100: a=50" {
				t.Errorf("offline, who has a token reads %q", got)
			}
			for _, secret := range []string{token, callers} {
				if found := filesWith(t, r.dir, secret); len(found) > 0 {
					t.Errorf("%q have the token", found)
				}
			}
			r.restarts()
		}
	})
}

// Boards without a battery boot in 1970. What was read last stays, and not what has the latest time.
func TestAClockThatIsSetBackEvictsNoneOfTheNewestAnswers(t *testing.T) {
	const bound = 1000
	dir := filepath.Join(t.TempDir(), "cache")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * 365 * 24 * time.Hour)
		r := newRepeatRigIn(t, dir)
		for i := range bound {
			r.online(read(fmt.Sprintf("/apis/g%d/v1", i)), http.StatusOK, "old")
		}
	})
	synctest.Test(t, func(t *testing.T) { // 20 years earlier
		r := newRepeatRigIn(t, dir)
		for i := range 3 {
			r.online(read(fmt.Sprintf("/apis/new%d/v1", i)), http.StatusOK, "new")
		}
		for i := range 3 {
			if got := r.offline(read(fmt.Sprintf("/apis/new%d/v1", i))); got != "200 new" {
				t.Errorf("offline, what was read last is %q", got)
			}
		}
	})
}
