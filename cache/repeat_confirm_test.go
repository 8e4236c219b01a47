package cache

import (
	"net/http"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/repeat"
)

// What was revoked while the cloud was there is revoked without it, though nobody has asked
// since; what was not revoked is good for as long as the cloud is away.
func TestARevocationIsLearnedWhileTheCloudIsThere(t *testing.T) {
	token, access := tokenReview("scraper"), accessReview("scraper", "create")
	for name, tc := range map[string]struct {
		revoke  func(*upstream) // after which some time passes with the cloud
		restart bool            // of the hub, before the loss
		stays   bool
	}{
		"revoked": {revoke: func(u *upstream) {
			u.on("review", reviewed(http.StatusUnauthorized, ""))
			u.onText("get", http.StatusCreated, `{"status":{}}`)
		}},
		"not revoked": {revoke: func(u *upstream) {
			u.on("get", func(r *http.Request) *http.Response {
				return respond(http.StatusCreated, `{"status":{"authenticated":true,"user":{"username":"scraper"},"allowed":true}}`)
			})
		}, stays: true},
		"apiservers that cannot say": {revoke: func(u *upstream) {
			u.on("review", reviewed(http.StatusInternalServerError, ""))
			u.onText("get", http.StatusInternalServerError, "{}")
		}, stays: true},
		"not asked for after a restart": {revoke: func(*upstream) {}, restart: true},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRepeatRig(t, ttl(24*time.Hour))
			r.u.shows("100", podJSON("a", "50"))
			scraper := as(t.Context(), "scraper")
			ask(scraper, t, r.c, http.MethodGet, urlPods)
			r.reviews(token, authenticated(token, "scraper"))
			r.reviews(access, allowed(access))
			time.Sleep(time.Minute)
			if tc.restart {
				r.restarts()
				get(t, r.c, urlPods)
			}
			tc.revoke(r.u)
			time.Sleep(repeat.Within + 3*repeat.Idle)
			r.u.goAway()
			time.Sleep(12 * time.Hour) // nothing ages
			want := identity.ErrUnknown.Error()
			if tc.stays {
				want = "100: a=50"
			}
			if got := ask(scraper, t, r.c, http.MethodGet, urlPods); got != want {
				t.Errorf("the token reads %q, want %q", got, want)
			}
			if got := r.saysYes(token); got != tc.stays {
				t.Errorf("TokenReview: %t", got)
			}
			if got := r.saysYes(access); got != tc.stays {
				t.Errorf("SubjectAccessReview: %t", got)
			}
		})
	}
}
