package discovery_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/discovery"
	"github.com/edgehub-io/edgehub/cache/identity"
	"github.com/edgehub-io/edgehub/cache/quota"
	"github.com/edgehub-io/edgehub/cache/store"
	"github.com/edgehub-io/edgehub/cache/table"
)

const (
	aggregated   = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	aggregatedV2 = aggregated + ",application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

// memory is a table.Store. It outlives what is opened on it, as a disk does.
type memory map[string][]byte // by table/key

func (m memory) Get(table, key string) ([]byte, error) {
	if value := m[table+"/"+key]; value != nil {
		return bytes.Clone(value), nil
	}
	return nil, store.ErrNotFound
}

func (m memory) Keys(table string) (keys []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if key, ok := strings.CutPrefix(name, table+"/"); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (m memory) Put(pairs ...store.Pair) error {
	for _, p := range pairs {
		if m[p.Table+"/"+p.Key] = bytes.Clone(p.Value); p.Value == nil {
			delete(m, p.Table+"/"+p.Key)
		}
	}
	return nil
}

func open(tb testing.TB, t table.Store, o discovery.Options) *discovery.Cache {
	tb.Helper()
	p, err := discovery.Open(t, o)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func get(url string, header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, url, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func headers(of ...string) http.Header { return get("/", of...).Header }

// answer returns "status body".
func answer(p *discovery.Cache, user string, r *http.Request) string {
	status, _, body, ok := p.Answer(user, r)
	if !ok {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, body))
}

func TestWhichAnswersAreKept(t *testing.T) {
	for path, want := range map[string]bool{
		"/version": true, "/version/": true, "/api": true, "/api/": true, "/api/v1": true, "/apis": true, "/apis/apps": true, "/apis/apps/v1": true,
		"/openapi/v3": true, "/openapi/v3/apis/apps/v1?hash=X": true,
		"/": false, "/healthz": false, "/metrics": false, "/logs/x": false, "/version/x": false, "/openapi/v2": false,
		"/api/v1/pods": false, "/api/v1/namespaces/ns/secrets/s": false, "/apis/apps/v1/deployments": false,
	} {
		if got := discovery.Wanted(get(path)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if r := httptest.NewRequest(http.MethodPost, "/version", http.NoBody); discovery.Wanted(r) {
		t.Error("a POST")
	}
}

func TestTheSameRequestGetsTheSameAnswerAlsoAfterARestart(t *testing.T) {
	disk := memory{}
	p := open(t, disk, discovery.Options{})
	header := headers("Content-Type", "application/json", "ETag", `"x"`, "Vary", "Accept", "Cache-Control", "no-cache, private", "Audit-Id", "1", "Content-Length", "4")
	p.Keep("node", get("/version"), 200, header, []byte("{v1}"))
	p.Keep("node", get("/openapi/v3/apis/apps/v1?hash=1"), 200, headers("Content-Type", "application/json"), []byte("{1}"))
	for range 2 {
		status, header, body, ok := p.Answer("node", get("/version/"))
		if !ok || status != 200 || string(body) != "{v1}" {
			t.Fatalf("%d, %s, %v", status, body, ok)
		}
		if want := headers("Content-Type", "application/json", "ETag", `"x"`, "Vary", "Accept", "Cache-Control", "no-cache, private"); fmt.Sprint(header) != fmt.Sprint(want) {
			t.Errorf("header %v, want %v", header, want)
		}
		for name, r := range map[string]*http.Request{
			"another path":  get("/api"),
			"another query": get("/openapi/v3/apis/apps/v1?hash=2"),
			"no query":      get("/openapi/v3/apis/apps/v1"),
		} {
			if got := answer(p, "node", r); got != "none" {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := answer(p, "eve", get("/version")); got != "none" {
			t.Errorf("another user: %s", got)
		}
		p = open(t, disk, discovery.Options{})
	}
	for _, text := range []string{"node", "version", "openapi"} {
		if keys := fmt.Sprint(slices.Collect(maps.Keys(disk))); strings.Contains(keys, text) {
			t.Errorf("a key in the table tells %q: %s", text, keys)
		}
	}
}

func TestAnotherAcceptHeader(t *testing.T) {
	p := open(t, memory{}, discovery.Options{})
	p.Keep("u", get("/apis", "Accept", aggregatedV2), 200, headers("Content-Type", aggregated), []byte("aggregated"))
	p.Keep("u", get("/apis", "Accept", aggregated+";profile=nopeer"), 200, headers("Content-Type", aggregated+";profile=nopeer"), []byte("nopeer"))
	for _, c := range []struct{ name, accept, want string }{
		{"the same", aggregatedV2, "200 aggregated"},
		{"parameters in another order", "application/json;v=v2;as=APIGroupDiscoveryList;g=apidiscovery.k8s.io", "200 aggregated"},
		{"aggregated at last", "application/json;as=x;g=y;v=z, " + aggregated + ";q=0.5", "200 aggregated"},
		{"not at all", aggregated + ";q=0", "none"},
		{"another profile first", aggregated + ";profile=nopeer," + aggregated, "200 nopeer"},
		{"plain discovery", "application/json", "none"},
		{"anything", "*/*", "none"},
		{"no header", "", "none"},
		{"what is no media type", ";;;,/,\"", "none"},
	} {
		r := get("/apis", "Accept", c.accept)
		if c.accept == "" {
			r.Header.Del("Accept")
		}
		if got := answer(p, "u", r); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	p.Keep("u", get("/apis", "Accept", "application/json, */*"), 200, headers("Content-Type", "application/json; charset=utf-8"), []byte("plain"))
	for _, accept := range []string{"application/json", "*/*", "application/yaml, application/json;q=0.1", aggregatedV2[len(aggregated)+1:]} {
		if got := answer(p, "u", get("/apis", "Accept", accept)); got != "200 plain" {
			t.Errorf("%s: %s", accept, got)
		}
	}
}

func TestConditionalRequests(t *testing.T) {
	disk := memory{}
	p := open(t, disk, discovery.Options{})
	json := headers("Content-Type", "application/json", "ETag", `"1"`)

	p.Keep("u", get("/api", "If-None-Match", `"1"`), 304, headers("ETag", `"1"`), nil)
	for range 2 {
		for tag, want := range map[string]string{`"1"`: "304", `W/"1"`: "304", `"0", "1"`: "304", `"0"`: "none", "": "none", "*": "none"} {
			if got := answer(p, "u", get("/api", "If-None-Match", tag)); got != want {
				t.Errorf("nothing read, If-None-Match %s: %s, want %s", tag, got, want)
			}
		}
		p = open(t, disk, discovery.Options{})
	}

	p.Keep("u", get("/api"), 200, json, []byte("one"))
	for tag, want := range map[string]string{`"1"`: "304", "*": "304", `"0"`: "200 one", "": "200 one"} {
		if got := answer(p, "u", get("/api", "If-None-Match", tag)); got != want {
			t.Errorf("read, If-None-Match %s: %s, want %s", tag, got, want)
		}
	}
	_, header, _, _ := p.Answer("u", get("/api", "If-None-Match", `"1"`))
	if header.Get("ETag") != `"1"` || header.Get("Content-Type") != "" {
		t.Errorf("header of a 304: %v", header)
	}

	p.Keep("u", get("/api", "If-None-Match", `"2"`), 304, nil, nil)
	for tag, want := range map[string]string{`"2"`: "304", `"1"`: "200 one", "": "200 one"} {
		if got := answer(p, "u", get("/api", "If-None-Match", tag)); got != want {
			t.Errorf("changed since, If-None-Match %s: %s, want %s", tag, got, want)
		}
	}
	p.Keep("u", get("/api", "If-None-Match", `"1"`), 304, nil, nil)
	if got := answer(p, "u", get("/api", "If-None-Match", `"1"`)); got != "304" {
		t.Errorf("changed back: %s", got)
	}
	p.Keep("u", get("/api", "If-None-Match", `"7", "8"`), 304, nil, nil)
	for tag, want := range map[string]string{`"7"`: "200 one", `"1"`: "304"} {
		if got := answer(p, "u", get("/api", "If-None-Match", tag)); got != want {
			t.Errorf("nobody knows which of two was confirmed, If-None-Match %s: %s, want %s", tag, got, want)
		}
	}
}

func TestAnswersThatOverwriteNothing(t *testing.T) {
	p := open(t, memory{}, discovery.Options{})
	json := headers("Content-Type", "application/json")
	p.Keep("u", get("/version"), 200, json, []byte("good"))
	p.Keep("u", get("/version", "Accept", "application/json"), 200, json, []byte("good"))
	p.Keep("other", get("/version"), 200, json, []byte("theirs"))
	for _, status := range []int{206, 301, 401, 404, 410, 429, 500, 503} {
		p.Keep("u", get("/version"), status, json, []byte("bad"))
	}
	p.Keep("u", get("/version"), 200, headers("Content-Type", "application/json", "Content-Encoding", "gzip"), []byte("bad"))
	p.Keep("u", get("/version"), 200, json, make([]byte, discovery.MaxBody+1))
	p.Keep("u", get("/healthz"), 200, json, []byte("bad"))
	if got := answer(p, "u", get("/version")); got != "200 good" || p.Len() != 3 {
		t.Errorf("%s, %d answers", got, p.Len())
	}

	p.Keep("u", get("/version"), 403, json, nil)
	if got := answer(p, "u", get("/version")); got != "none" {
		t.Errorf("after 403: %s", got)
	}
	if got := answer(p, "other", get("/version")); got != "200 theirs" {
		t.Errorf("after another user's 403: %s", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	p := open(t, memory{}, discovery.Options{Bounds: quota.Bounds{Count: 5, Bytes: 1 << 20}})
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r := get(fmt.Sprintf("/apis/g%d", i))
			p.Keep("u", r, 200, headers("Content-Type", "application/json"), []byte("x"))
			p.Answer("u", r)
			p.Keep("u", r, 403, nil, nil)
		})
	}
	all.Wait()
	if p.Len() != 0 {
		t.Errorf("%d answers", p.Len())
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add("/apis", aggregatedV2, `"1"`)
	f.Add("/apis", "*/*;q=x,application/*;q=0.1", `W/"2", *`)
	f.Fuzz(func(t *testing.T, path, accept, tags string) {
		p := open(t, memory{}, discovery.Options{})
		p.Keep("u", get("/apis", "Accept", aggregated), 200, headers("Content-Type", aggregated, "ETag", `"1"`), []byte("x"))
		r := get("/apis")
		r.URL.Path = path
		r.Header.Set("Accept", accept)
		r.Header.Set("If-None-Match", tags)
		if status, _, body, ok := p.Answer("u", r); ok && (status == 200) != (string(body) == "x") {
			t.Errorf("%d with %q", status, body)
		}
	})
}

func TestIgnoredParametersMakeNoEntry(t *testing.T) {
	p := open(t, memory{}, discovery.Options{})
	json := headers("Content-Type", "application/json")
	for i := range 10 {
		p.Keep("u", get(fmt.Sprintf("/version?x=%d", i)), 200, json, []byte("v"))
		p.Keep("u", get(fmt.Sprintf("/openapi/v3/apis/apps/v1?hash=1&hash=%d&x=%d", i, i)), 200, json, []byte("s"))
	}
	if p.Len() != 2 {
		t.Errorf("%d entries, want 2", p.Len())
	}
	if got := answer(p, "u", get("/version?y=1")); got != "200 v" {
		t.Errorf("with another query: %s", got)
	}
}

// A user has a few answers per path, however many Accept headers it sends. So a long one is compared with few, too.
func TestVariantsOfAnAnswerAreBounded(t *testing.T) {
	disk := memory{}
	p := open(t, disk, discovery.Options{})
	for i := range 20 {
		p.Keep("u", get("/version", "Accept", fmt.Sprint("a/b", i)), 200, headers("Content-Type", fmt.Sprint("a/b", i)), []byte("v"))
	}
	if got := answer(p, "u", get("/version", "Accept", "a/b19")); got != "200 v" || p.Len() != 8 {
		t.Errorf("the last of %d answers: %s", p.Len(), got)
	}
	if p = open(t, disk, discovery.Options{}); p.Len() != 8 {
		t.Errorf("after a restart there are %d answers", p.Len())
	}
}

// #17: an answer counts against the user who has read it, whatever it reads.
func TestAnAnswerCountsAgainstItsReader(t *testing.T) {
	json := headers("Content-Type", "application/json")
	account := func(namespace string, i int) string {
		return identity.User{Name: fmt.Sprintf("system:serviceaccount:%s:a%d", namespace, i), UID: "1"}.Key()
	}
	p := open(t, memory{}, discovery.Options{Bounds: quota.Bounds{Count: 10, Bytes: 1 << 20}})
	users := []string{"node", account("victims", 1)}
	for _, user := range users {
		p.Keep(user, get("/version"), 200, json, []byte("v"))
		p.Keep(user, get("/version", "If-None-Match", `"1"`), 304, nil, nil)
	}
	for i := range 20 {
		p.Keep(account("flood", i), get("/version"), 200, json, []byte("x"))
		p.Keep(account("flood", i), get("/apis", "If-None-Match", `"1"`), 304, nil, nil)
	}
	for _, user := range users {
		if got := answer(p, user, get("/version")); got != "200 v" {
			t.Errorf("of %s: %s", user, got)
		}
	}
}

// A 304 is a read like any other, and is found after a restart though it changes nothing.
func TestWhatAnApiserverConfirmsIsNotTheLeastRecentlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memory{}
		o := discovery.Options{Bounds: quota.Bounds{Count: 2, Bytes: 1 << 20}}
		p := open(t, disk, o)
		for _, path := range []string{"/version", "/api"} {
			p.Keep("u", get(path), 200, headers("Content-Type", "application/json", "ETag", `"1"`), []byte("v"))
			time.Sleep(48 * time.Hour)
		}
		p.Keep("u", get("/version", "If-None-Match", `"1"`), 304, nil, nil)
		p = open(t, disk, o)
		p.Keep("u", get("/apis"), 200, headers("Content-Type", "application/json"), []byte("v"))
		if got := answer(p, "u", get("/version")) + ", " + answer(p, "u", get("/api")); got != "200 v, none" {
			t.Error(got)
		}
	})
}
