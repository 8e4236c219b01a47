package cache

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/repeat"
)

// askReview posts a review as the node, and returns the answer's body.
func askReview(ctx context.Context, t *testing.T, c *Cache, url, spec string) string {
	t.Helper()
	r := newRequest(ctx, http.MethodPost, url)
	text := `{"spec":` + spec + `}`
	withBody, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.URL.String(), strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	withBody.Header = r.Header
	withBody.Header.Set("Content-Type", "application/json")
	res, err := c.RoundTrip(withBody)
	if err != nil {
		return err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// What was revoked while the cloud was there is revoked without it, though nobody has asked
// since; what was not revoked is good for as long as the cloud is away.
func TestARevocationIsLearnedWhileTheCloudIsThere(t *testing.T) {
	const (
		token  = `{"token":"scraper"}`
		access = `{"user":"scraper","resourceAttributes":{"verb":"create","resource":"nodes","subresource":"proxy"}}`
	)
	says := func(yes bool) answerFunc {
		return func(r *http.Request) *http.Response {
			switch {
			case r.Method != http.MethodPost:
				return respond(http.StatusOK, podJSON("a", "50"))
			case r.URL.Path == urlTokenReviews && yes:
				return respond(http.StatusCreated, `{"status":{"authenticated":true,"user":{"username":"scraper"}}}`)
			case r.URL.Path == urlAccessReviews && yes:
				return respond(http.StatusCreated, `{"status":{"allowed":true}}`)
			}
			return respond(http.StatusCreated, `{"status":{}}`)
		}
	}
	for name, tc := range map[string]struct {
		revoke  func(*upstream) // after which some time passes with the cloud
		restart bool            // of the hub, before the loss
		stays   bool
	}{
		"revoked": {revoke: func(u *upstream) {
			u.on("review", reviewed(http.StatusUnauthorized, ""))
			u.on("get", says(false))
		}},
		"not revoked": {revoke: func(*upstream) {}, stays: true},
		"apiservers that cannot say": {revoke: func(u *upstream) {
			u.on("review", reviewed(http.StatusInternalServerError, ""))
			u.on("get", func(*http.Request) *http.Response { return respond(http.StatusInternalServerError, "{}") })
		}, stays: true},
		"not asked for after a restart": {revoke: func(*upstream) {}, restart: true},
	} {
		bubble(t, name, func(t *testing.T) {
			u, dir := newUpstream(), t.TempDir()
			u.shows("100", podJSON("a", "50"))
			u.on("get", says(true))
			ttl := func(o *Options) { o.AuthorizationTTL = 24 * time.Hour }
			c, stop := runIn(t, dir, u, ttl)
			coredns := as(t.Context(), "coredns")
			ask(coredns, t, c, http.MethodGet, urlPods)
			askReview(t.Context(), t, c, urlTokenReviews, token)
			askReview(t.Context(), t, c, urlAccessReviews, access)
			time.Sleep(time.Minute)
			if tc.restart {
				stop()
				c = openCache(t, dir, u, ttl)
				runCache(t, c)
				get(t, c, urlPods)
			}
			tc.revoke(u)
			time.Sleep(repeat.Within + 3*repeat.Idle)
			u.goAway()
			time.Sleep(12 * time.Hour) // nothing ages
			want, yes := identity.ErrUnknown.Error(), tc.stays
			if yes {
				want = "100: a=50"
			}
			if got := ask(coredns, t, c, http.MethodGet, urlPods); got != want {
				t.Errorf("the token reads %q, want %q", got, want)
			}
			if got := askReview(t.Context(), t, c, urlTokenReviews, token); strings.Contains(got, `"authenticated":true`) != yes {
				t.Errorf("TokenReview: %s", got)
			}
			if got := askReview(t.Context(), t, c, urlAccessReviews, access); strings.Contains(got, `"allowed":true`) != yes {
				t.Errorf("SubjectAccessReview: %s", got)
			}
		})
	}
}
