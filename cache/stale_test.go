package cache

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// Pod a is at 999 by now; the watch of startWatching shows it at 50, and the node was shown something newer.
func TestAReadIsNotAnsweredFromAWatchThatHasNotComeToWhatTheNodeHasSeen(t *testing.T) {
	type do = func(*testing.T, *watching)
	const pods, table = "/api/v1/namespaces/ns/pods", "application/json;as=Table;v=v1;g=meta.k8s.io"
	const meta = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
	const success = `{"kind":"Status","apiVersion":"v1","status":"Success"}`
	const noX = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"x","kind":"pods"}}`
	const tabled = `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{}}`
	does := func(method, url string, code int, body, accept string) do { // "" accepts JSON
		return func(t *testing.T, w *watching) {
			ctx, contentType := t.Context(), "application/json"
			if accept != "" {
				ctx = context.WithValue(ctx, acceptKey{}, accept)
			}
			if accept == "application/yaml" {
				contentType = accept
			}
			for _, verb := range []string{"get", "list", "delete"} {
				w.on(verb, func(*http.Request) *http.Response {
					res := respond(code, body)
					res.Header.Set("Content-Type", contentType)
					return res
				})
			}
			res, err := w.cache.RoundTrip(newRequest(ctx, method, url))
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	}
	events := func(all ...string) do { return func(t *testing.T, w *watching) { send(t, w.feed, all...) } }
	later, b := podJSON("a", "130"), events(podEvent("ADDED", "b", "115"))
	tables := func(t *testing.T, w *watching) {
		w.on("get", func(*http.Request) *http.Response {
			b(t, w)
			synctest.Wait() // it counts from its answer
			return respond(http.StatusOK, tabled)
		})
		readsAs(table, urlPodA)(t, w)
	}
	for name, tt := range map[string]struct {
		do             []do
		selector       string // of the watch
		url            string // that is read; the default is urlPodA
		accept, params string // of who reads
	}{
		"PATCH of a subresource":                   {do: []do{does("PATCH", urlPodA+"/resize", 200, later, "")}},
		"PATCH of a subresource, a list":           {do: []do{does("PATCH", urlPodA+"/resize", 200, later, "")}, url: urlPods},
		"GET of its status":                        {do: []do{does("GET", urlPodA+"/status", 200, later, "")}},
		"an eviction":                              {do: []do{does("POST", urlPodA+"/eviction", 201, success, "")}},
		"PATCH, answered in YAML":                  {do: []do{does("PATCH", urlPodA, 200, "metadata: {}", "application/yaml")}},
		"PATCH, answered as a table":               {do: []do{does("PATCH", urlPodA, 200, tabled, table)}},
		"POST, answered in YAML, a list":           {do: []do{does("POST", pods, 201, "metadata: {}", "application/yaml")}, url: urlPods},
		"PUT with a malformed parameter":           {do: []do{does("PUT", urlPodA+"?x=%zz", 200, later, "")}},
		"GET of metadata, answered whole":          {do: []do{does("GET", urlPodA, 200, later, meta)}},
		"DELETE of all, then a late event":         {do: []do{does("DELETE", pods, 200, success, ""), b}},
		"DELETE of all, then a late event, a list": {do: []do{does("DELETE", pods, 200, success, ""), b}, url: urlPods},
		"DELETE with 202, then a late event":       {do: []do{does("DELETE", urlPodA, 202, success, ""), b}},
		"DELETE without a UID, then a late event":  {do: []do{does("DELETE", urlPodA, 200, success, ""), events(podEvent("MODIFIED", "a", "115"))}},
		"DELETE as a table, then a late event":     {do: []do{does("DELETE", urlPodA, 200, tabled, table), b}},
		"404, then a late event":                   {do: []do{does("GET", pods+"/x", 404, noX, ""), events(podEvent("ADDED", "x", "115"))}, url: pods + "/x"},
		"GET of other bytes of the same version":   {do: []do{does("GET", urlPodA, 200, podJSON("a", "50", "new"), "")}},
		"GET as a table, with an event meanwhile":  {do: []do{tables}},
		"JSON that an apiserver indents":           {accept: "application/json;pretty=1"},
		"initial events, which belong to no list":  {params: "&sendInitialEvents=true", url: urlPods},
	} {
		bubble(t, name, func(t *testing.T) {
			w := startWatching(t, tt.selector)
			for _, one := range tt.do {
				one(t, w)
				synctest.Wait()
			}
			w.shows("999", podJSON("a", "999"))
			if tt.url == "" {
				tt.url = urlPodA
			}
			ctx := t.Context()
			if tt.accept != "" {
				ctx = context.WithValue(ctx, acceptKey{}, tt.accept)
			}
			if got := ask(ctx, t, w.cache, http.MethodGet, tt.url+anyVersion+tt.params); !strings.Contains(got, "999") && got != "404" {
				t.Errorf("by the hub: %q", got)
			}
		})
	}
}

// A watch catches up, and its view answers again.
func TestAWatchAnswersAgainAfterWhatWasShownAtNoVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWatching(t, "")
		w.answers(t, "get", http.StatusCreated, `{"kind":"Status","apiVersion":"v1","status":"Success"}`, http.MethodPost, urlPodA+"/eviction")
		w.shows("999", podJSON("a", "999"))
		bookmarks(1)(t, w)
		expect(t, w.cache, "a minute later", urlPods+anyVersion, "999: a=999")
		get(t, w.cache, urlPodA)
		send(t, w.feed, podEvent("MODIFIED", "a", "1000"))
		synctest.Wait()
		expect(t, w.cache, "when it was read since, and the watch has come to that", urlPodA+anyVersion, "a=1000")
		bookmarks(1)(t, w)
		send(t, w.feed, podEvent("MODIFIED", "a", "1001"))
		synctest.Wait()
		expect(t, w.cache, "two minutes later", urlPodA+anyVersion, "a=1001")
	})
}

// A kind has two versions, whose objects have the same resourceVersions.
func TestAWatchOfOneVersionOfAnAPIDoesNotAnswerWhereAnotherWasUsed(t *testing.T) {
	const v1, beta = "/apis/example.com/v1/foos", "/apis/example.com/v1beta1/foos"
	for name, tt := range map[string]struct {
		method string
		code   int
	}{"GET": {"GET", 200}, "PATCH": {"PATCH", 200}, "DELETE": {"DELETE", 200}, "refused": {"GET", 403}} {
		for _, read := range []string{v1 + "/x", v1} {
			bubble(t, name+" "+read, func(t *testing.T) {
				u := newUpstream()
				shows := func(code int, version string) {
					answer := func(r *http.Request) *http.Response {
						body := foosJSON(version, version)
						switch {
						case r.Method == http.MethodDelete:
							body = `{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"x","kind":"foos","group":"example.com","uid":"u"}}`
						case strings.HasSuffix(r.URL.Path, "/x"):
							body = fooJSON(version)
						}
						return respond(code, strings.ReplaceAll(body, "/v1", r.URL.Path[strings.Index(r.URL.Path, "/v1"):strings.Index(r.URL.Path, "/foos")]))
					}
					u.on("get", answer)
					u.on("delete", answer)
				}
				c := startCache(t, u, func(o *Options) { o.ServeWatched = true })
				shows(200, "50")
				get(t, c, v1)
				startWatch(t.Context(), t, c, v1+"?watch=true&allowWatchBookmarks=true&resourceVersion=50")
				send(t, <-u.feeds, `{"type":"BOOKMARK","object":{"kind":"Foo","apiVersion":"example.com/v1","metadata":{"resourceVersion":"110"}}}`+"\n")
				synctest.Wait()
				shows(tt.code, "130")
				ask(t.Context(), t, c, tt.method, beta+"/x")
				shows(200, "999")
				if got := get(t, c, read+anyVersion); !strings.Contains(got, "999") {
					t.Errorf("by the hub: %q", got)
				}
			})
		}
	}
}

// The wall clock goes on while a machine is suspended; the monotonic one, by which Sub goes, does not.
func TestAWatchDoesNotAnswerAfterTheMachineWasSuspended(t *testing.T) {
	u := newUpstream() // not in a bubble, whose times have no monotonic reading
	u.shows("100", podJSON("a", "50"))
	c := startCache(t, u, func(o *Options) { o.ServeWatched = true })
	get(t, c, urlPods)
	startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100")
	send(t, <-u.feeds, podBookmark("110", false))
	for asked := -1; asked != u.count("get"); { // until the bookmark has come
		asked = u.count("get")
		expect(t, c, "with a watch", urlPodA+anyVersion, "a=50")
	}
	u.shows("999", podJSON("a", "999"))
	now := time.Now()
	*(*uint64)(unsafe.Pointer(&now)) += 8 * 3600 << 30 //nolint:gosec // its wall seconds: no function changes one clock alone
	c.views.Now = func() time.Time { return now }
	expect(t, c, "when it wakes up", urlPodA+anyVersion, "a=999")
}
