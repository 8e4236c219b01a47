package cache

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/view"
)

// step is something that happens before the cloud is lost.
type step func(*testing.T, *Cache, *upstream)

func TestGoneAndForbiddenObjectsAreNotServedOffline(t *testing.T) {
	const all = "100: a=50"
	never, denied := view.ErrNeverRead.Error(), view.ErrDenied.Error()
	notFound := func(resource, name string) string {
		return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":%q,"kind":%q}}`, name, resource)
	}
	asks := func(urls ...string) step {
		return func(t *testing.T, c *Cache, _ *upstream) {
			for _, url := range urls {
				get(t, c, url)
			}
		}
	}
	answers := func(verb string, code int, body string) step {
		return func(_ *testing.T, _ *Cache, u *upstream) { u.onText(verb, code, body) }
	}
	deletes := func(t *testing.T, c *Cache, _ *upstream) {
		ask(t.Context(), t, c, http.MethodDelete, urlPodA)
	}
	var open *watcher
	watches := func(version string) step {
		return func(t *testing.T, c *Cache, _ *upstream) {
			open = startWatch(t.Context(), t, c, urlWatch+"&resourceVersion="+version)
			synctest.Wait()
		}
	}
	breaksOff := func(_ *testing.T, _ *Cache, u *upstream) {
		(<-u.feeds).CloseWithError(io.ErrUnexpectedEOF)
		time.Sleep(time.Minute)
	}
	leaves := func(*testing.T, *Cache, *upstream) {
		open.stop()
		<-open.done
	}
	tests := map[string]struct {
		do           []step
		object, list string // offline
	}{
		"a read object":                             {[]step{asks(urlPodA)}, "a=50", never},
		"a read object that is gone":                {[]step{asks(urlPodA), answers("get", 404, notFound("pods", "a")), asks(urlPodA)}, "404", never},
		"a read object that a later list lacks":     {[]step{asks(urlPodA), answers("list", 200, podsJSON("120")), asks(urlPods)}, "404", "120:"},
		"a 404 that is about something else":        {[]step{asks(urlPodA), answers("get", 404, notFound("namespaces", "ns")), asks(urlPodA)}, "a=50", never},
		"a 404 that says nothing":                   {[]step{asks(urlPodA), answers("get", 404, "404 page not found"), asks(urlPodA)}, "a=50", never},
		"a 404 for what a list view has":            {[]step{asks(urlPods, urlPodA), answers("get", 404, notFound("pods", "a")), asks(urlPodA)}, "404", all},
		"a 404 of an apiserver that may lag":        {[]step{asks(urlPods, urlPodA), answers("get", 404, notFound("pods", "a")), asks(urlPodA + anyVersion)}, fmt.Sprintf("%v: %v", view.ErrDoubtful, errRefused), all},
		"the same, and then one that does not":      {[]step{asks(urlPods, urlPodA), answers("get", 404, notFound("pods", "a")), asks(urlPodA + anyVersion), answers("get", 200, podJSON("a", "50")), asks(urlPodA)}, "a=50", all},
		"a read object that its reader has deleted": {[]step{asks(urlPodA), answers("delete", 200, podJSON("a", "60")), deletes}, "404", never},
		"a listed object that a reader has deleted": {[]step{asks(urlPods), answers("delete", 200, podJSON("a", "60")), deletes}, "404", all},
		"an object whose deletion was refused":      {[]step{asks(urlPodA), answers("delete", 409, "{}"), deletes}, "a=50", never},
		"a refused read":                            {[]step{asks(urlPodA), answers("get", 403, "{}"), asks(urlPodA)}, denied, never},
		"a refused read of what was listed":         {[]step{asks(urlPods), answers("get", 403, "{}"), asks(urlPodA)}, denied, all},
		"a refused read, and then one that was not": {[]step{asks(urlPods), answers("get", 403, "{}"), asks(urlPodA), answers("get", 200, podJSON("a", "50")), asks(urlPodA)}, "a=50", all},
		"a refused list":                            {[]step{asks(urlPods), answers("list", 403, "{}"), asks(urlPods)}, never, denied},
		"a refused list, and then one that was not": {[]step{asks(urlPods), answers("list", 403, "{}"), asks(urlPods), answers("list", 200, podsJSON("100", podJSON("a", "50"))), asks(urlPods)}, "a=50", all},
		"a refused list that was newer than a read": {[]step{asks(urlPodA), answers("list", 200, podsJSON("120", podJSON("a", "110"))), asks(urlPods), answers("list", 403, "{}"), asks(urlPods)}, fmt.Sprintf("%v: %v", view.ErrDoubtful, errRefused), denied},
		"a list of a kind that is gone":             {[]step{asks(urlPods), answers("list", 404, "{}"), asks(urlPods)}, never, denied},
		"a list that failed":                        {[]step{asks(urlPods), answers("list", 500, "{}"), asks(urlPods)}, "a=50", all},
		"a watch that is refused when it goes on":   {[]step{asks(urlPods), watches("100"), answers("watch", 403, "{}"), breaksOff}, never, denied},
		"a refused list, and then a watch from it":  {[]step{asks(urlPods), answers("list", 403, "{}"), asks(urlPods), watches("100"), leaves}, "a=50", all},
		"a kind that is gone, and is watched again": {[]step{asks(urlPods), answers("list", 404, "{}"), asks(urlPods), watches("100"), leaves}, "a=50", all},
	}
	for _, code := range []int{400, 401, 409, 410, 429, 500, 502, 503, 504} {
		tests[fmt.Sprint("everything is answered with ", code)] = struct {
			do           []step
			object, list string
		}{[]step{
			asks(urlPods, urlPodA), answers("list", code, "{}"), answers("get", code, "{}"), answers("watch", code, "{}"),
			asks(urlPods, urlPodA, urlWatch+"&resourceVersion=100"),
		}, "a=50", all}
	}
	for name, test := range tests {
		bubble(t, name, func(t *testing.T) {
			u, dir := newUpstream(), t.TempDir()
			u.shows("100", podJSON("a", "50"))
			c, stop := runIn(t, dir, u)
			other := as(t.Context(), "coredns") // whom nothing of it concerns
			for _, url := range []string{urlPods, urlPodA} {
				ask(other, t, c, http.MethodGet, url)
			}
			for _, do := range test.do {
				do(t, c, u)
			}
			u.goAway()
			for _, when := range []string{"offline", "offline, and after a restart"} {
				if got := get(t, c, urlPodA); got != test.object {
					t.Errorf("%s, the object: %q, want %q", when, got, test.object)
				}
				for _, form := range []string{protobuf, "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"} {
					if test.object != denied {
						break // it may be there, and is described from JSON only
					}
					if got := ask(context.WithValue(t.Context(), acceptKey{}, form), t, c, http.MethodGet, urlPodA); got != denied {
						t.Errorf("%s, the object as %s: %q, want %q", when, form, got, denied)
					}
				}
				if got := get(t, c, urlPods); got != test.list {
					t.Errorf("%s, the list: %q, want %q", when, got, test.list)
				}
				if list, object := ask(other, t, c, http.MethodGet, urlPods), ask(other, t, c, http.MethodGet, urlPodA); list != all || object != "a=50" {
					t.Errorf("%s, another user reads %q and %q", when, list, object)
				}
				stop()
				c, stop = runIn(t, dir, u)
			}
		})
	}
}

// No refusal is forgotten because there are many: then whatever no GET has read since is refused, and nothing else.
func TestTooManyRefusalsRefuseByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		denied, forgotten := view.ErrDenied.Error(), view.ErrForgotten.Error()+": "+errRefused.Error()
		other := as(t.Context(), "coredns")
		u, dir := newUpstream(), t.TempDir()
		u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
		c, stop := runIn(t, dir, u)
		get(t, c, urlPods)
		ask(other, t, c, http.MethodGet, urlPods)
		refuse := func(names ...string) {
			u.onText("get", http.StatusForbidden, "{}")
			for _, name := range names {
				get(t, c, modelURL(name))
			}
		}
		offline := func(when, a, b string) {
			u.goAway()
			for _, when := range []string{when, when + ", and after a restart"} {
				expect(t, c, when, urlPodA, a)
				expect(t, c, when, urlPodB, b)
				expect(t, c, when, urlPods, "100: a=50 b=51")
				if got := ask(other, t, c, http.MethodGet, urlPodA); got != "a=50" {
					t.Errorf("%s, another user reads %q", when, got)
				}
				stop()
				c, stop = runIn(t, dir, u)
			}
			u.comeBack()
		}
		refuse("a")
		offline("one is refused", denied, "b=51")
		for i := range 2_000 {
			refuse(fmt.Sprint("p", i))
		}
		offline("many are refused", forgotten, forgotten)
		u.onText("get", http.StatusOK, podJSON("b", "51"))
		get(t, c, urlPodB)
		offline("one is read", forgotten, "b=51")
		refuse("b")
		offline("it is refused again", forgotten, denied)
	})
}
