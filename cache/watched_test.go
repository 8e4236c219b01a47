package cache

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const anyVersion = "?resourceVersion=0"

// watching is a node that watches pods, and has a bookmark at 110.
type watching struct {
	*upstream
	cache   *Cache
	watcher *watcher
	feed    *io.PipeWriter
}

// answers has the node get an answer to another request.
func (w *watching) answers(t *testing.T, verb string, code int, body, method, url string) {
	t.Helper()
	w.onText(verb, code, body)
	ask(t.Context(), t, w.cache, method, url)
}

// The apiservers have pod a at version 999 by now; the watch does not, if nothing else happens.
func TestAReadThatAcceptsAnyVersionIsAnsweredFromAnOpenWatch(t *testing.T) {
	const object, list, askedObject, askedList = "a=50/l", "110: a=50/l", "a=999", "999: a=999"
	type do = func(*testing.T, *watching)
	events := func(all ...string) do {
		return func(t *testing.T, w *watching) { send(t, w.feed, all...) }
	}
	gets := func(code int, body string) do {
		return func(t *testing.T, w *watching) { w.answers(t, "get", code, body, http.MethodGet, urlPodA) }
	}
	lists := func(code int, body, selector string) do {
		return func(t *testing.T, w *watching) {
			w.answers(t, "list", code, body, http.MethodGet, urlPods+selector)
		}
	}
	deletes := func(body, url string) do {
		return func(t *testing.T, w *watching) { w.answers(t, "delete", http.StatusOK, body, http.MethodDelete, url) }
	}
	breaks := func(_ *testing.T, w *watching) { w.feed.CloseWithError(io.ErrUnexpectedEOF) }
	accepts := func(header string) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context { return context.WithValue(ctx, acceptKey{}, header) }
	}
	const notFound = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":"a","kind":"pods"}}`
	const table = "application/json;as=Table;v=v1;g=meta.k8s.io"
	tests := map[string]struct {
		do           []do
		from         func(context.Context) context.Context // of who reads
		selector     string                                // of the watch
		params       string                                // of who reads; the default is anyVersion
		object, list string                                // what is read; the default is what the apiservers have
	}{
		"a watch with a bookmark":                         {object: object, list: list},
		"a watch by a name":                               {selector: "&fieldSelector=metadata.name%3Da", object: object},
		"a watch by a label":                              {selector: "&labelSelector=l", object: object},
		"an event":                                        {do: []do{events(podEvent("MODIFIED", "a", "120"))}, object: "a=120", list: "120: a=120"},
		"an event of another object":                      {do: []do{events(podEvent("ADDED", "b", "120"))}, object: object, list: "120: a=50/l b=120"},
		"the end of the object":                           {do: []do{events(podEvent("DELETED", "a", "120"))}, list: "120:"},
		"a watch that has been open for long":             {do: []do{bookmarks(10)}, object: object, list: list},
		"a watch without a sign of life":                  {do: []do{bookmarks(1), func(*testing.T, *watching) { time.Sleep(2 * time.Minute) }}},
		"a watch that its client has left":                {do: []do{func(_ *testing.T, w *watching) { w.watcher.stop(); <-w.watcher.done }}},
		"a watch that broke off":                          {do: []do{breaks}},
		"a watch that was resumed, before its bookmark":   {do: []do{breaks, func(t *testing.T, w *watching) { send(t, <-w.feeds, podEvent("ADDED", "b", "120")) }}},
		"a watch that was resumed, after its bookmark":    {do: []do{breaks, func(t *testing.T, w *watching) { send(t, <-w.feeds, podBookmark("120", false)) }}, object: object, list: "120: a=50/l"},
		"an event that cannot be read":                    {do: []do{lists(http.StatusServiceUnavailable, "{}", ""), events(podEvent("MODIFIED", "", ""))}},
		"a later version by GET":                          {do: []do{gets(http.StatusOK, podJSON("a", "130"))}},
		"a later version of another object by GET":        {do: []do{other}, object: object},
		"an earlier version by GET":                       {do: []do{gets(http.StatusOK, podJSON("a", "45"))}, object: object, list: list},
		"a later version by GET, which the watch has":     {do: []do{gets(http.StatusOK, podJSON("a", "130")), events(podEvent("MODIFIED", "a", "130"))}, object: "a=130", list: "130: a=130"},
		"an object that was not found":                    {do: []do{gets(http.StatusNotFound, notFound)}},
		"an object that was refused":                      {do: []do{gets(http.StatusForbidden, "{}")}},
		"a list that was refused":                         {do: []do{lists(http.StatusForbidden, "{}", "")}},
		"a later list of the same":                        {do: []do{lists(http.StatusOK, podsJSON("130", podJSON("a", "125")), "")}, object: "a=125", list: "130: a=125"},
		"a later list of something else with a change":    {do: []do{lists(http.StatusOK, podsJSON("130", podJSON("a", "125")), "?labelSelector=x")}},
		"a later list of something else":                  {do: []do{lists(http.StatusOK, podsJSON("130", podJSON("a", "50")), "?labelSelector=x")}, object: object},
		"a later list by name that does not have it":      {do: []do{lists(http.StatusOK, podsJSON("130"), "?fieldSelector=metadata.name%3Da")}},
		"an object that was deleted":                      {do: []do{deletes(`{"kind":"Status","apiVersion":"v1","status":"Success","details":{"name":"a","kind":"pods","uid":"u-a"}}`, urlPodA)}},
		"many objects that were deleted":                  {do: []do{deletes(`{"kind":"Status","apiVersion":"v1","status":"Success"}`, "/api/v1/namespaces/ns/pods")}},
		"a table of the object":                           {do: []do{readsAs(table, urlPodA)}},
		"a table of all objects":                          {do: []do{readsAs(table, urlPods)}},
		"the newest":                                      {params: "?"},
		"not older than a version":                        {params: "?resourceVersion=90"},
		"JSON for people":                                 {params: anyVersion + "&pretty=true"},
		"another encoding":                                {from: accepts(protobuf)},
		"an encoding that the hub does not know, or JSON": {from: accepts("application/cbor,application/json;q=0.9")},
		"a table, or JSON":                                {from: accepts(table + ",application/json")},
		"another user":                                    {from: func(ctx context.Context) context.Context { return as(ctx, "coredns.1") }},
	}
	for name, tt := range tests {
		for url, want := range map[string]string{urlPodA: tt.object, urlPods: tt.list} {
			if want == "" {
				want = map[string]string{urlPodA: askedObject, urlPods: askedList}[url]
			}
			if tt.params == "" {
				tt.params = anyVersion
			}
			bubble(t, name+" "+url, func(t *testing.T) {
				w := startWatching(t, tt.selector)
				for _, one := range tt.do {
					one(t, w)
					synctest.Wait()
				}
				w.shows("999", podJSON("a", "999"))
				ctx := t.Context()
				if tt.from != nil {
					ctx = tt.from(ctx)
				}
				if got := ask(ctx, t, w.cache, http.MethodGet, url+tt.params); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			})
		}
	}
}

func startWatching(t *testing.T, selector string) *watching {
	t.Helper()
	u := newUpstream()
	u.shows("100", podJSON("a", "50", "l"))
	c := startCache(t, u, func(o *Options) { o.ServeWatched = true })
	get(t, c, urlPods+"?"+selector)
	w := &watching{u, c, startWatch(t.Context(), t, c, urlWatch+"&resourceVersion=100"+selector), <-u.feeds}
	if get(t, c, urlPodA+anyVersion); u.count("get") != 1 {
		t.Fatal("answered from a watch that has no bookmark yet")
	}
	u.shows("110", podJSON("a", "50", "l"))
	send(t, w.feed, podBookmark("110", false))
	synctest.Wait()
	return w
}

// bookmarks sends a bookmark a minute.
func bookmarks(n int) func(*testing.T, *watching) {
	return func(t *testing.T, w *watching) {
		for range n {
			time.Sleep(time.Minute)
			send(t, w.feed, podBookmark("110", false))
		}
	}
}

// other reads another pod, which is at a later version.
func other(t *testing.T, w *watching) {
	w.answers(t, "get", http.StatusOK, podJSON("b", "130"), http.MethodGet, "/api/v1/namespaces/ns/pods/b")
}

// readsAs reads in another form.
func readsAs(accept, url string) func(*testing.T, *watching) {
	return func(t *testing.T, w *watching) {
		ask(context.WithValue(t.Context(), acceptKey{}, accept), t, w.cache, http.MethodGet, url)
	}
}

// A client that does not read what its watch gets must not keep others at what there was before.
func TestAWatchThatIsNotReadAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"))
		c.opts.ServeWatched = true
		res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, urlWatch+"&resourceVersion=100"))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		feed := <-u.feeds
		go io.WriteString(feed, podBookmark("110", false)) // a test cannot fail there; the client gets it
		if _, err := res.Body.Read(make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		u.shows("999", podJSON("a", "999"))
		expect(t, c, "while it is not read", urlPodA+anyVersion, "a=999")
	})
}

// The flag turns it off.
func TestNoWatchAnswersIfTheFlagIsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWatching(t, "")
		w.cache.opts.ServeWatched = false
		w.shows("999", podJSON("a", "999"))
		expect(t, w.cache, "turned off", urlPods+anyVersion, "999: a=999")
	})
}

// What the node has reported offline is shown until it is settled, and the cloud is asked so long.
func TestNoWatchAnswersWhileSomethingOfAnOutageIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := startWatching(t, "")
		w.goAway()
		w.feed.CloseWithError(io.ErrUnexpectedEOF)
		reportStatus(t, w.cache, "a", "10.0.0.1")
		w.shows("110", podJSON("a", "50", "l"))
		w.comeBack()
		get(t, w.cache, urlPods) // the cloud has answered
		asked := func() bool {
			before := w.count("list")
			get(t, w.cache, urlPods+anyVersion)
			return w.count("list") > before
		}
		send(t, <-w.feeds, podBookmark("110", false))
		synctest.Wait()
		if !asked() {
			t.Error("answered while the status is shown")
		}
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		if !w.cache.derived.HasReports(pods) || w.cache.derived.HasReports(corev1.SchemeGroupVersion.WithResource("nodes")) {
			t.Error("the status of a pod is not what keeps reads of pods, and of nothing else, from being answered")
		}
		feed := <-w.feeds            // when the watch has settled it, it goes on anew
		time.Sleep(10 * time.Second) // and the report has been dropped
		send(t, feed, podBookmark("110", false))
		synctest.Wait()
		if w.cache.derived.HasReports(pods) || asked() {
			t.Errorf("not answered once it is settled; a report is left: %v", w.cache.derived.HasReports(pods))
		}
	})
}
