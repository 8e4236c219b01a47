package cache

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/view"
)

const anyVersion = "?resourceVersion=0"

// took returns an answer, and after how long it came.
func took(ctx context.Context, t *testing.T, c *Cache, url string) string {
	t.Helper()
	began := time.Now()
	got := ask(ctx, t, c, http.MethodGet, url)
	return fmt.Sprintf("%s after %v", got, time.Since(began))
}

// A hub starts, and packets to the cloud are swallowed.
func TestBeforeTheCloudIsKnownToBeAwayAnyStateWillDo(t *testing.T) {
	none, unknown := view.ErrNeverRead.Error(), identity.ErrUnknown.Error()
	const list = "100: a=50 b=51"
	tests := map[string]struct {
		url, token string
		want       string
	}{
		"a list of any version":                     {urlPods + "?resourceVersion=0", "", list + " after 100ms"},
		"the same, said otherwise":                  {urlPods + "?resourceVersion=0&resourceVersionMatch=NotOlderThan", "", list + " after 100ms"},
		"an object of any version":                  {urlPodA + "?resourceVersion=0", "", "a=50 after 100ms"},
		"the list of a user whose token is known":   {urlPods + "?resourceVersion=0", "coredns.1", list + " after 2.5s"},
		"a token that is not known":                 {urlPods + "?resourceVersion=0", "other.1", unknown + " after 2.5s"},
		"the newest list":                           {urlPods, "", list + " after 2.5s"},
		"the newest object":                         {urlPodA, "", "a=50 after 2.5s"},
		"a list that is not older than a version":   {urlPods + "?resourceVersion=90&resourceVersionMatch=NotOlderThan", "", list + " after 2.5s"},
		"a list that was not read":                  {urlPods + "?resourceVersion=0&labelSelector=l", "", none + " after 2.5s"},
		"an object that was not read":               {"/api/v1/namespaces/ns/services/a?resourceVersion=0", "", none + " after 2.5s"},
		"an object that does not exist":             {"/api/v1/namespaces/ns/pods/c?resourceVersion=0", "", "404 after 2.5s"},
		"the next page of a list":                   {urlPods + "?resourceVersion=0&continue=x", "", "410 after 2.5s"},
		"initial events, which belong to no list":   {urlPods + "?resourceVersion=0&sendInitialEvents=true", "", list + " after 2.5s"},
		"slices, which follow the pods of the node": {"/apis/discovery.k8s.io/v1/endpointslices?resourceVersion=0", "", "100: after 2.5s"},
	}
	for name, tt := range tests {
		bubble(t, name, func(t *testing.T) {
			u, dir := newUpstream(), t.TempDir()
			u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
			c, stop := runIn(t, dir, u)
			get(t, c, urlPods)
			ask(as(t.Context(), "coredns.1"), t, c, http.MethodGet, urlPods)
			u.onText("get", http.StatusOK, `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{"resourceVersion":"100"},"items":[]}`)
			get(t, c, "/apis/discovery.k8s.io/v1/endpointslices")
			stop()

			u.beginSilent()
			c = startIn(t, dir, u)
			ctx := t.Context()
			if tt.token != "" {
				ctx = as(ctx, tt.token)
			}
			if got := took(ctx, t, c, tt.url); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// What the cloud answers is newer. It has 100 ms, once.
func TestACloudThatAnswersAtTheStartIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), t.TempDir()
		u.shows("100", podJSON("a", "50"))
		c, stop := runIn(t, dir, u)
		get(t, c, urlPods)
		stop()
		u.shows("110", podJSON("a", "110"))

		answer := u.beginSilent()
		c, stop = runIn(t, dir, u)
		time.AfterFunc(90*time.Millisecond, answer)
		if got, want := took(t.Context(), t, c, urlPods+anyVersion), "110: a=110 after 90ms"; got != want {
			t.Errorf("a cloud that is there: %q, want %q", got, want)
		}
		stop()

		u.shows("120", podJSON("a", "120"))
		answer = u.beginSilent()
		c = startIn(t, dir, u)
		for _, want := range []string{"110: a=110 after 100ms", "110: a=110 after 0s"} {
			if got := took(t.Context(), t, c, urlPods+anyVersion); got != want {
				t.Errorf("a cloud that takes longer: %q, want %q", got, want)
			}
		}
		answer()
		if got, want := took(t.Context(), t, c, urlPods+anyVersion), "120: a=120 after 0s"; got != want {
			t.Errorf("once it has answered: %q, want %q", got, want)
		}
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=120")
		send(t, <-u.feeds, podBookmark("120", false))
		synctest.Wait()
		u.shows("130", podJSON("a", "130"))
		expect(t, c, "the list, while a watch is open that does not have it yet", urlPods+anyVersion, "130: a=130")
		u.shows("140", podJSON("a", "140"))
		expect(t, c, "the object, likewise", urlPodA+anyVersion, "a=140")
		u.goAway()
		expect(t, c, "once it is lost", urlPods+anyVersion, "130: a=130")
	})
}
