package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	aggregated   = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedV2 = aggregated + ",application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

// read is a GET of the node with fields of its header.
func read(url string, header ...string) question { return question{url: url, header: header} }

func TestWhichPathsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		for url, want := range map[string]string{
			"/version": "200 {}", "/version/": "200 {}", "/api": "200 {}", "/api/": "200 {}", "/api/v1": "200 {}", "/apis": "200 {}",
			"/apis/apps": "200 {}", "/apis/apps/v1": "200 {}", "/openapi/v3": "200 {}", "/openapi/v3/apis/apps/v1?hash=X": "200 {}",
			"/": "none", "/metrics": "none", "/logs/x": "none", "/version/x": "none", "/openapi/v2": "none", "/healthz": "200 ok",
		} {
			r.online(read(url), http.StatusOK, "{}")
			if got := r.offline(read(url)); got != want {
				t.Errorf("%s: %s, want %s", url, got, want)
			}
		}
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodHead} {
			if got := r.offline(question{method: method, url: "/version"}); strings.HasPrefix(got, "200") {
				t.Errorf("%s: %s", method, got)
			}
		}
	})
}

// Only what identifies an answer counts: the user, the path, and the hash of a schema.
func TestAPathIsAnsweredAsItWasReadAlsoAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		stays := []string{"Content-Type", "application/json", "Etag", `"x"`, "Vary", "Accept", "Cache-Control", "no-cache"}
		r.online(read("/version?x=1"), http.StatusOK, "{v1}", append([]string{"Audit-Id", "1"}, stays...)...)
		r.online(read("/openapi/v3/apis/apps/v1?hash=1&hash=3"), http.StatusOK, "{1}", "Content-Encoding", "identity")
		for range 2 {
			res, body := r.offlineResponse(read("/version/"))
			if res == nil || res.StatusCode != http.StatusOK || body != "{v1}" {
				t.Fatalf("%v, %s", res, body)
			}
			want := http.Header{"Content-Length": {"4"}}
			if setHeader(want, stays); fmt.Sprint(res.Header) != fmt.Sprint(want) {
				t.Errorf("header %v, want %v", res.Header, want)
			}
			for url, want := range map[string]string{
				"/version?y=2": "200 {v1}", "/api": "none",
				"/openapi/v3/apis/apps/v1?hash=1&x=5": "200 {1}", "/openapi/v3/apis/apps/v1?hash=3": "none", "/openapi/v3/apis/apps/v1": "none",
			} {
				if got := r.offline(read(url)); got != want {
					t.Errorf("%s: %s, want %s", url, got, want)
				}
			}
			eve := question{user: as(t.Context(), "eve"), url: "/version"}
			r.online(eve, http.StatusServiceUnavailable, "")
			if got := r.offline(eve); strings.Contains(got, "v1") {
				t.Errorf("another user reads %s", got)
			}
			r.restarts()
		}
	})
}

func TestAPathInAnotherFormThanItWasRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		const nopeer = aggregated + ";profile=nopeer"
		r.online(read("/apis", "Accept", aggregatedV2), http.StatusOK, "aggregated", "Content-Type", aggregated)
		r.online(read("/apis", "Accept", nopeer), http.StatusOK, "nopeer", "Content-Type", nopeer)
		for accept, want := range map[string]string{
			aggregatedV2: "200 aggregated",
			"application/json;v=v2;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io": "200 aggregated",
			"application/json;as=x;g=y;v=z, " + aggregated + ";q=0.5":              "200 aggregated",
			aggregated + ";q=0":                     "none",
			nopeer + "," + aggregated:               "200 nopeer",
			aggregated + ";q=0.5," + nopeer:         "200 nopeer",
			"application/json":                      "none",
			"*/*":                                   "none",
			"":                                      "none",
			";;;,/,\"":                              "none",
			strings.Repeat("a/b,", 64) + aggregated: "none",
		} {
			if got := r.offline(read("/apis", "Accept", accept)); got != want {
				t.Errorf("Accept %q: %s, want %s", accept, got, want)
			}
		}
		r.online(read("/apis", "Accept", "application/json, */*"), http.StatusOK, "plain", "Content-Type", "application/json; charset=utf-8")
		for _, accept := range []string{"application/json", "*/*", "", ";;;", "application/yaml, application/json;q=0.1", aggregatedV2[len(aggregated)+1:]} {
			if got := r.offline(read("/apis", "Accept", accept)); got != "200 plain" {
				t.Errorf("Accept %q: %s", accept, got)
			}
		}
	})
}

// kubectl has discovery on disk, and asks whether it is still current.
func TestConditionalRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		current := func(tag string, header ...string) {
			r.online(read("/api", "If-None-Match", tag), http.StatusNotModified, "", header...)
		}
		gets := func(when string, want map[string]string) {
			t.Helper()
			for tag, want := range want {
				if got := r.offline(read("/api", "If-None-Match", tag)); got != want {
					t.Errorf("%s, If-None-Match %s: %s, want %s", when, tag, got, want)
				}
			}
		}
		current(`"1"`, "Etag", `"1"`, "Content-Type", "")
		for range 2 {
			gets("nothing was read", map[string]string{`"1"`: "304", `W/"1"`: "304", `"0", "1"`: "304", `"0"`: "none", "": "none", "*": "none"})
			r.restarts()
		}
		r.online(read("/api"), http.StatusOK, "one", "Etag", `"1"`)
		gets("read", map[string]string{`"1"`: "304", "*": "304", `"0"`: "200 one", "": "200 one"})
		if res, _ := r.offlineResponse(read("/api", "If-None-Match", `"1"`)); res.Header.Get("Etag") != `"1"` || res.Header["Content-Type"] != nil || res.Header["Content-Length"] != nil {
			t.Errorf("header of a 304: %v", res.Header)
		}
		current(`"2"`)
		gets("changed since", map[string]string{`"2"`: "304", `"1"`: "200 one", "": "200 one"})
		current(`"1"`)
		gets("changed back", map[string]string{`"1"`: "304"})
		current(`"7", "8"`)
		gets("nobody knows which of two was confirmed", map[string]string{`"7"`: "200 one", `"1"`: "304"})
	})
}

func TestWhichAnswersOverwriteAPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		other := question{user: as(t.Context(), "other"), url: "/version"}
		r.online(read("/version"), http.StatusOK, "good")
		r.online(read("/version", "Accept", "a/b"), http.StatusOK, "good")
		r.online(other, http.StatusOK, "theirs")
		for _, code := range []int{206, 301, 401, 404, 410, 429, 500, 503} {
			r.online(read("/version"), code, "bad")
		}
		r.online(read("/version"), http.StatusOK, "bad", "Content-Encoding", "br")
		r.online(read("/version"), http.StatusOK, strings.Repeat("x", 1<<20+1))
		if got := r.offline(read("/version")); got != "200 good" {
			t.Error(got)
		}
		r.online(read("/version"), http.StatusForbidden, "")
		for _, accept := range []string{"application/json", "a/b"} {
			if got := r.offline(read("/version", "Accept", accept)); got != "none" {
				t.Errorf("after 403, in %s: %s", accept, got)
			}
		}
		if got := r.offline(other); got != "200 theirs" {
			t.Errorf("after another user's 403: %s", got)
		}
	})
}

// A user has a few answers for a path, however many Accept headers and queries it sends.
func TestWhatAClientVariesEvictsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		r.online(read("/api"), http.StatusOK, "read by others")
		for i := range 1100 {
			form := fmt.Sprint("a/b", i)
			r.online(read(fmt.Sprint("/version?x=", i)), http.StatusOK, "v")
			r.online(read("/apis", "Accept", form), http.StatusOK, form, "Content-Type", form)
		}
		for range 2 {
			if got := r.offline(read("/api")); got != "200 read by others" {
				t.Errorf("what others read: %s", got)
			}
			for i, want := range map[int]string{0: "none", 1091: "none", 1092: "200 a/b1092", 1099: "200 a/b1099"} {
				if got := r.offline(read("/apis", "Accept", fmt.Sprint("a/b", i))); got != want {
					t.Errorf("form %d of 1100: %s, want %s", i, got, want)
				}
			}
			r.restarts()
		}
	})
}

// A 304 is a read like any other, and is found after a restart though it changes nothing.
func TestWhatAnApiserverConfirmsIsNotTheLeastRecentlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRepeatRig(t)
		for i := range 1000 {
			r.online(read(fmt.Sprint("/apis/", i)), http.StatusOK, "v", "Etag", `"1"`)
		}
		time.Sleep(25 * time.Hour)
		r.online(read("/apis/0", "If-None-Match", `"1"`), http.StatusNotModified, "")
		r.restarts()
		r.online(read("/apis/new"), http.StatusOK, "v")
		for url, want := range map[string]string{"/apis/0": "200 v", "/apis/1": "none", "/apis/2": "200 v", "/apis/new": "200 v"} {
			if got := r.offline(read(url)); got != want {
				t.Errorf("%s: %s, want %s", url, got, want)
			}
		}
	})
}
