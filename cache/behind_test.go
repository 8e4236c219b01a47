package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

// Each client has seen version 120 when the cloud goes away; the view is at version 100.
func TestAViewThatIsBehindItsClientsIsNotServed(t *testing.T) {
	tests := map[string]func(*testing.T, *upstream, *Cache){
		"a list in pages of two versions": readMixedPages,
		"a list whose first page had to make room": func(t *testing.T, u *upstream, c *Cache) {
			page := func(r *http.Request) *http.Response {
				if r.URL.Query().Get("continue") != "" {
					return respond(http.StatusOK, podsJSON("120", podJSON("b", "120")))
				}
				return respond(http.StatusOK, fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"120","continue":"next"},"items":[%s]}`, podJSON("a", "50")))
			}
			u.on("list", page)
			get(t, c, urlPods+"?limit=5")
			for n := range 2 * view.MaxPartialLists {
				time.Sleep(time.Millisecond) // the oldest go first
				get(t, c, fmt.Sprintf("%s?limit=5&labelSelector=n%%3D%d", urlPods, n))
			}
			if c.pages.Before(podsKey(query.NodeUser), "next") != nil {
				t.Fatal("the first page is still there: this test shows nothing")
			}
			if got, want := get(t, c, urlPods+"?limit=5&continue=next"), "120: b=120"; got != want {
				t.Fatalf("the last page is %q, want %q", got, want)
			}
		},
	}
	for name, see := range tests {
		bubble(t, name, func(t *testing.T) {
			u := newUpstream()
			u.shows("100", podJSON("a", "50"))
			c := startCache(t, u)
			if got, want := get(t, c, urlPods), "100: a=50"; got != want {
				t.Fatalf("online: %q, want %q", got, want)
			}
			see(t, u, c)
			synctest.Wait()
			u.goAway()
			expect(t, c, "offline", urlPods, view.ErrBehind.Error())
			u.shows("130", podJSON("b", "125"))
			u.comeBack()
			time.Sleep(time.Minute)
			if got, want := get(t, c, urlPods), "130: b=125"; got != want {
				t.Fatalf("online again: %q, want %q", got, want)
			}
			u.goAway()
			expect(t, c, "offline again", urlPods, "130: b=125")
		})
	}
}

// readMixedPages has a client read a list in pages of which the last is at version 120. It is not kept.
func readMixedPages(t *testing.T, u *upstream, c *Cache) {
	t.Helper()
	u.on("list", func(r *http.Request) *http.Response {
		if r.URL.Query().Get("continue") != "" {
			return respond(http.StatusOK, podsJSON("120", podJSON("a", "120")))
		}
		return respond(http.StatusOK, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"110","continue":"next"},"items":[]}`)
	})
	get(t, c, urlPods+"?limit=5")
	if got, want := get(t, c, urlPods+"?limit=5&continue=next"), "120: a=120"; got != want {
		t.Fatalf("the last page is %q, want %q", got, want)
	}
}

// Clients live through a restart of the hub, but not through a reboot.
func TestAHubThatRestartsKnowsWhatIsBehind(t *testing.T) {
	for name, tc := range map[string]struct {
		boot, want string
	}{
		"the hub":     {want: view.ErrBehind.Error()},
		"the machine": {boot: "another one", want: "100: a=50"},
	} {
		bubble(t, name, func(t *testing.T) {
			u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
			u.shows("100", podJSON("a", "50"))
			c := openCache(t, dir, u)
			if tc.boot != "" {
				c.views.Boot = tc.boot
			}
			stop := runCache(t, c)
			get(t, c, urlPods)
			readMixedPages(t, u, c)
			u.goAway()
			expect(t, c, "offline", urlPods, view.ErrBehind.Error())
			stop()

			c = startIn(t, dir, u)
			if got := get(t, c, urlPods); got != tc.want {
				t.Errorf("offline, after a restart: %q, want %q", got, tc.want)
			}
			u.shows("130", podJSON("b", "125"))
			u.comeBack()
			get(t, c, urlPods)
			u.goAway()
			expect(t, c, "when it was listed again", urlPods, "130: b=125")
		})
	}
}

func TestAViewThatIsBehindCatchesUpWithItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
		feed := <-u.feeds
		readMixedPages(t, u, c)
		send(t, feed, podEvent("MODIFIED", "a", "120"))
		synctest.Wait()
		u.goAway()
		expect(t, c, "offline", urlPods, "120: a=120")
	})
}

// After a restore of etcd its state counts, even if clients have seen much higher versions.
func TestAViewThatWasBehindFollowsAStoreThatWasRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		readMixedPages(t, u, c)
		u.shows("60", podJSON("a", "40"))
		get(t, c, urlPods) // shows that versions have gone back
		get(t, c, urlPods)
		u.goAway()
		expect(t, c, "offline", urlPods, "60: a=40")
	})
}

// A GET shows nothing older than what a client got as an event while the view was lost.
func TestAGetShowsNothingOlderThanEventsOfAViewThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		asksOnce(t, u, c, urlWatch+"&resourceVersion=100")
		u.shows("100", podJSON("a", "50"))
		startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=110")
		send(t, <-u.feeds, podEvent("MODIFIED", "a", "120"))
		synctest.Wait()
		u.on("watch", func(*http.Request) *http.Response { return nil })
		u.onText("check", http.StatusOK, podsJSON("120"))
		get(t, c, urlPods+anyVersion) // below the event
		synctest.Wait()
		u.goAway()
		expect(t, c, "offline, the list", urlPods, view.ErrBehind.Error())
		expect(t, c, "offline, the object", urlPodA, view.ErrDoubtful.Error()+": connection refused")
		u.on("watch", u.open)
		u.comeBack()
		time.Sleep(time.Minute)
		send(t, <-u.feeds, podEvent("MODIFIED", "a", "120"))
		synctest.Wait()
		u.goAway()
		expect(t, c, "offline again, the list", urlPods, "120: a=120")
		expect(t, c, "offline again, the object", urlPodA, "a=120")
	})
}

// A list at an old version is not served to a client that got a newer one, converted from another
// representation.
func TestAnOldListInAnotherRepresentationIsNotServed(t *testing.T) {
	const form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	old := func(body io.Reader) *http.Response {
		res := respond(http.StatusOK, "")
		res.Body = io.NopCloser(body)
		res.ContentLength = -1
		res.Header.Set("Content-Type", form)
		return res
	}
	const begin, end = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"90"},`, `"items":[]}`
	remember := func(ctx context.Context, t *testing.T, u *upstream, c *Cache) {
		u.on("list", func(*http.Request) *http.Response {
			return old(strings.NewReader(begin + end))
		})
		ask(ctx, t, c, http.MethodGet, urlPods+"?resourceVersion=90&resourceVersionMatch=Exact")
	}
	again := func(ctx context.Context, t *testing.T, u *upstream, c *Cache) {
		u.comeBack()
		remember(ctx, t, u, c)
		u.goAway()
	}
	// Each returns what has the old list come, or come again, while the cloud is away at last.
	for name, begins := range map[string]func(ctx context.Context, t *testing.T, u *upstream, c *Cache) (comes func()){
		"which comes afterwards": func(ctx context.Context, t *testing.T, u *upstream, c *Cache) func() {
			return func() { again(ctx, t, u, c) }
		},
		"which was refused": func(ctx context.Context, t *testing.T, u *upstream, c *Cache) func() {
			remember(ctx, t, u, c)
			u.onText("list", http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			ask(ctx, t, c, http.MethodGet, urlPods)
			u.shows("100", podJSON("a", "50"))
			get(t, c, urlPods) // in this form it is allowed again
			return func() { again(ctx, t, u, c) }
		},
		"which was on its way": func(ctx context.Context, t *testing.T, u *upstream, c *Cache) func() {
			body, rest := io.Pipe()
			u.on("list", func(*http.Request) *http.Response { return old(body) })
			go ask(ctx, t, c, http.MethodGet, urlPods)
			send(t, rest, begin)
			return func() {
				send(t, rest, end)
				_ = rest.Close()
			}
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			metadata := context.WithValue(t.Context(), acceptKey{}, form)
			comes := begins(metadata, t, u, c)
			synctest.Wait()
			u.goAway()
			if got, want := ask(metadata, t, c, http.MethodGet, urlPods), "100: a=50"; got != want {
				t.Fatalf("offline, converted: %q, want %q", got, want)
			}
			comes()
			synctest.Wait()
			if got, want := ask(metadata, t, c, http.MethodGet, urlPods), "100: a=50"; got != want {
				t.Errorf("offline, after the old list: %q, want %q", got, want)
			}
		})
	}
}

// An object was seen by a selector, and no longer matches it. A copy from another query is older.
func TestAnOlderCopyIsNotServedAfterAnObjectLeftASelector(t *testing.T) {
	const selected = urlPods + "?labelSelector=l%3Dx"
	leave := map[string]func(*testing.T, *upstream, *Cache){
		"by an event": func(t *testing.T, u *upstream, c *Cache) {
			startWatch(t.Context(), t, c, selected+"&watch=true&allowWatchBookmarks=true&resourceVersion=110")
			send(t, <-u.feeds, podEvent("DELETED", "a", "120"))
		},
		"by a list": func(t *testing.T, u *upstream, c *Cache) {
			u.shows("120")
			get(t, c, selected)
		},
	}
	for name, leaves := range leave {
		bubble(t, name, func(t *testing.T) {
			u, c := startListed(t, "100", podJSON("a", "50"))
			u.shows("110", podJSON("a", "105", "x"))
			if got, want := get(t, c, selected), "110: a=105/x"; got != want {
				t.Fatalf("online: %q, want %q", got, want)
			}
			leaves(t, u, c)
			synctest.Wait()
			u.goAway()
			expect(t, c, "offline", urlPodA, view.ErrDoubtful.Error()+": "+errRefused.Error())
			u.comeBack()
			u.shows("130", podJSON("a", "120"))
			get(t, c, urlPodA)
			u.goAway()
			expect(t, c, "offline again", urlPodA, "a=120")
		})
	}
}
