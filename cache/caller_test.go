package cache

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/view"
)

// reviewed answers reviews with this code, or for 201 with a user of this name.
func reviewed(code int, user string) answerFunc {
	return func(*http.Request) *http.Response {
		return respond(code, `{"status":{"userInfo":{"username":"`+user+`","uid":"u-`+user+`"}}}`)
	}
}

func TestNothingIsCachedForAUserWithoutReview(t *testing.T) {
	for name, review := range map[string]answerFunc{
		"anonymous":         reviewed(http.StatusCreated, "system:anonymous"),
		"a refused token":   reviewed(http.StatusUnauthorized, ""),
		"a review that 500": reviewed(http.StatusInternalServerError, ""),
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c := startCache(t, u)
			known, other := as(t.Context(), "coredns.1"), as(t.Context(), "coredns.2")
			want := ask(known, t, c, "GET", urlPods)
			u.on("review", review)
			if got := ask(other, t, c, "GET", urlPods); got != want {
				t.Errorf("online: %q, want %q", got, want)
			}
			u.onText("list", http.StatusForbidden, "{}")
			ask(other, t, c, "GET", urlPods)
			u.goAway()
			if got := ask(other, t, c, "GET", urlPods); got != identity.ErrUnknown.Error() {
				t.Errorf("offline: %q", got)
			}
			if got := ask(known, t, c, "GET", urlPods); got != want {
				t.Errorf("offline, somebody else: %q, want %q", got, want)
			}
			if n := len(c.State()); n != 1 {
				t.Errorf("%d views are kept", n)
			}
		})
	}
}

func TestATokenReadsWhatItsUserHasRead(t *testing.T) {
	const all = "100: a=50"
	for name, test := range map[string]struct{ uid, want string }{
		"a second token of the account":                {"u-coredns", all},
		"a token of another account that got its name": {"another", view.ErrNeverRead.Error()},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c := startCache(t, u)
			first, second := as(t.Context(), "coredns.1"), as(t.Context(), "coredns.2")
			ask(first, t, c, "GET", urlPods)
			u.on("review", func(*http.Request) *http.Response {
				return respond(http.StatusCreated, `{"status":{"userInfo":{"username":"coredns","uid":"`+test.uid+`"}}}`)
			})
			ask(second, t, c, "GET", urlPodA)
			u.goAway()
			if got := ask(second, t, c, "GET", urlPods); got != test.want {
				t.Errorf("with the second token: %q, want %q", got, test.want)
			}
			if got := ask(first, t, c, "GET", urlPods); got != all {
				t.Errorf("with the first: %q, want %q", got, all)
			}
		})
	}
}

// When the hub resumes a watch after an outage, the token may belong to another user, whose
// objects the first user must not see.
func TestAResumedWatchStillBelongsToItsUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("100", podJSON("a", "50"))
		c := startCache(t, u)
		coredns := as(t.Context(), "coredns")
		ask(coredns, t, c, "GET", urlPods)
		w := startWatch(coredns, t, c, urlWatch+"&resourceVersion=100")
		feed := <-u.feeds
		u.on("review", reviewed(http.StatusCreated, "other"))
		time.Sleep(25 * time.Hour) // and it is reviewed again
		feed.CloseWithError(io.ErrUnexpectedEOF)
		time.Sleep(time.Minute)
		if !w.ended() {
			t.Error("the watch goes on")
		}
		u.goAway()
		if got := ask(coredns, t, c, "GET", urlPods); got != view.ErrNeverRead.Error() {
			t.Errorf("who has the token now reads %q", got)
		}
		v := c.views.Find(podsKey(identity.User{Name: "coredns", UID: "u-coredns"}.Key()))
		if got, want := shows(t, v), "100 ns/a=50"; got != want {
			t.Errorf("the view of who had it shows %q, want %q", got, want)
		}
	})
}

// A kubelet or an aggregated apiserver may answer 401, too.
func TestA401HasATokenForgottenOnlyIfAReviewConfirmsIt(t *testing.T) {
	for name, test := range map[string]struct {
		url    string
		review answerFunc
		want   string
	}{
		"one that the apiserver still takes": {urlPods, nil, "100: a=50"},
		"one that it refuses":                {urlPods, reviewed(http.StatusUnauthorized, ""), identity.ErrUnknown.Error()},
		"one that it cannot review":          {urlPods, reviewed(http.StatusInternalServerError, ""), "100: a=50"},
		"the answer of a pod":                {urlPodA + "/proxy/", reviewed(http.StatusUnauthorized, ""), "100: a=50"},
	} {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c := startCache(t, u)
			coredns := as(t.Context(), "coredns")
			ask(coredns, t, c, "GET", urlPods)
			time.Sleep(time.Minute)
			if test.review != nil {
				u.on("review", test.review)
			}
			u.onText("list", http.StatusUnauthorized, "{}")
			u.onText("get", http.StatusUnauthorized, "{}")
			if got := ask(coredns, t, c, "GET", test.url); got != "401" {
				t.Errorf("online: %q", got)
			}
			u.goAway()
			if got := ask(coredns, t, c, "GET", urlPods); got != test.want {
				t.Errorf("offline: %q, want %q", got, test.want)
			}
		})
	}
}
