package cache

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	wal "github.com/edgehub-io/edgehub/cache/log"
	"github.com/edgehub-io/edgehub/cache/query"
)

func valueOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// flipObject flips a bit in each object, or value of a table, that contains a text.
func flipObject(t *testing.T, dir, text string) {
	t.Helper()
	path := filepath.Join(dir, "cache.log")
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := 0
	for at := 0; ; flipped++ {
		i := bytes.Index(log[at:], []byte(text))
		if i < 0 {
			break
		}
		at += i + len(text)
		log[at-1] ^= 1
	}
	if flipped == 0 {
		t.Fatalf("%q is not in the cache", text)
	}
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The hub starts whichever part of its files is damaged.
func TestAHubStartsWhateverIsDamaged(t *testing.T) {
	u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
	u.shows("100", podJSON("a", "50"), podJSON("b", "51"))
	c, stop := runIn(t, dir, u)
	get(t, c, urlPods)
	ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
	for n := range 300 { // records
		c.views.Gone(query.UserResource{User: query.NodeUser, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, fmt.Sprintf("ns/gone-%d", n), "100", "u", true)
	}
	u.goAway()
	reportStatus(t, c, "a", "10.0.0.1")
	stop()
	for _, name := range []string{"cache.log"} {
		file := filepath.Join(dir, name)
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(whole); at += 4096 {
			spoiled := bytes.Clone(whole)
			clear(spoiled[at:min(at+4096, len(whole))])
			if err := os.WriteFile(file, spoiled, 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := Open(dir, u, testOptions(t))
			if err != nil {
				t.Errorf("%s at %d: %v", name, at, err)
				continue
			}
			if err := c.Close(); err != nil {
				t.Errorf("%s at %d: close: %v", name, at, err)
			}
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// An answer that has begun can only break off at damage. Where that has happened, the next one is refused as a whole.
func TestAnAnswerThatWouldBreakOffIsRefused(t *testing.T) {
	for _, url := range []string{urlPods, urlInitial} {
		synctest.Test(t, func(t *testing.T) {
			u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
			c, stop := runIn(t, dir, u)
			u.shows("100", largePod("a", "50", 100<<10), podJSON("b", "51"))
			ctx := as(t.Context(), "coredns") // what the node has read is read by the hub, too
			ask(ctx, t, c, http.MethodGet, urlPods)
			stop()
			flipObject(t, dir, `"name":"b"`)
			u.goAway()
			c = startIn(t, dir, u)
			res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url))
			if err != nil {
				t.Fatal(err)
			}
			if _, err = io.Copy(io.Discard, res.Body); !errors.Is(err, wal.ErrCorrupt) {
				t.Errorf("%s ends with %v", url, err)
			}
			res.Body.Close()
			if res, err := c.RoundTrip(newRequest(ctx, http.MethodGet, url)); !errors.Is(err, wal.ErrCorrupt) {
				t.Errorf("%s is answered with %v, %v", url, res, err)
			}
			if got := ask(ctx, t, c, http.MethodGet, urlPodA); !strings.HasPrefix(got, "a=50") {
				t.Errorf("the other object is %.20q", got)
			}
		})
	}
}

// Damage that nobody has met yet is repaired by what is read again; and it is found when the log is written anew,
// which has the clients of watched views list again.
func TestDamageIsRepairedBeforeAnybodyMeetsIt(t *testing.T) {
	const urlOfB = urlPods + "?fieldSelector=metadata.name%3Db"
	read := func(url string) func(*testing.T, *Cache) {
		return func(t *testing.T, c *Cache) { get(t, c, url) }
	}
	for what, test := range map[string]struct {
		url, want string // offline
		before    func(*testing.T, *Cache)
		again     func(*testing.T, *Cache)
	}{
		"a list":     {urlPods, "100: a=50 b=51", read(urlPods), read(urlPods)},
		"part of it": {urlOfB, "100: b=51", read(urlOfB), read(urlOfB)},
		"a GET":      {urlPodB, "b=51", read(urlPodB), read(urlPodB)},
		"initial events": {urlPods, "100: a=50 b=51", read(urlPods), func(t *testing.T, c *Cache) {
			<-startWatch(t.Context(), t, c, urlInitial+"&timeoutSeconds=1").done
		}},
		"a log written anew": {urlPods, "100: a=50 b=51", read(urlPods), func(t *testing.T, c *Cache) {
			kubelet := startReflector(t, c, "100")
			time.Sleep(7 * time.Hour)
			kubelet.end()
		}},
	} {
		bubble(t, what, func(t *testing.T) {
			u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
			u.on("list", func(r *http.Request) *http.Response {
				if r.URL.Query().Has("fieldSelector") {
					return respond(http.StatusOK, podsJSON("100", podJSON("b", "51")))
				}
				return respond(http.StatusOK, podsJSON("100", podJSON("a", "50"), podJSON("b", "51")))
			})
			u.onText("check", http.StatusOK, podsJSON("100", podJSON("a", "50")))
			u.onText("get", http.StatusOK, podJSON("b", "51"))
			c, stop := runIn(t, dir, u)
			test.before(t, c)
			stop()
			flipObject(t, dir, `"name":"b"`)
			c, stop = runIn(t, dir, u)
			if what == "initial events" {
				u.onText("watch", http.StatusOK, podEvent("ADDED", "a", "50")+podEvent("ADDED", "b", "51")+podBookmark("100", true))
			}
			test.again(t, c)
			stop()
			u.goAway()
			expect(t, startIn(t, dir, u), "read again", test.url, test.want)
		})
	}
}

// A list after a restart has the disk checked, and comes out as the one before. A client of a version that the view was followed to
// has the same, and need not list again. One of a version in between does: what it has may have come and gone, and a hub that was
// killed knows nothing of it.
func TestWhoListsAgainAfterAListThatChangesNothing(t *testing.T) {
	type step func(t *testing.T, u *upstream, c *Cache)
	list := func(version, a string) step {
		return func(t *testing.T, u *upstream, c *Cache) {
			u.shows(version, podJSON("a", a))
			get(t, c, urlPods)
		}
	}
	follow := func(from, event string) step {
		return func(t *testing.T, u *upstream, c *Cache) {
			w := startWatch(t.Context(), t, c, urlWatch+"&resourceVersion="+from)
			send(t, <-u.feeds, event)
			synctest.Wait()
			w.stop()
			<-w.done
		}
	}
	for name, tt := range map[string]struct {
		steps        []step // after a list at 100 that was followed to 120
		client, want string
	}{
		"at the view's version":               {[]step{list("120", "50")}, "110", "BOOKMARK:=120"},
		"later, a client of before":           {[]step{list("130", "50")}, "110", "BOOKMARK:=130"},
		"later, a client of the view's":       {[]step{list("130", "50")}, "120", "BOOKMARK:=130"},
		"later, a client of in between":       {[]step{list("130", "50")}, "125", "ERROR:410"},
		"later, a client that is ahead":       {[]step{list("130", "50")}, "131", ""},
		"twice, a client of before":           {[]step{list("130", "50"), list("140", "50")}, "120", "BOOKMARK:=140"},
		"twice, a client below the first":     {[]step{list("130", "50"), list("140", "50")}, "125", "ERROR:410"},
		"twice, a client above the first":     {[]step{list("130", "50"), list("140", "50")}, "135", "ERROR:410"},
		"twice the same, a client of between": {[]step{list("130", "50"), list("130", "50")}, "125", "ERROR:410"},
		"followed before it, a client of before": {
			[]step{list("120", "50"), follow("120", podBookmark("125", false)), list("130", "50")}, "122", "BOOKMARK:=130",
		},
		"after a change, a client of that": {
			[]step{list("130", "50"), follow("130", podEvent("MODIFIED", "a", "150")), list("160", "150")}, "150", "BOOKMARK:=160",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
			for _, do := range append([]step{list("100", "50"), follow("100", podBookmark("120", false))}, tt.steps...) {
				c, stop := runIn(t, dir, u)
				do(t, u, c)
				stop()
			}
			u.goAway()
			w := startWatch(t.Context(), t, startIn(t, dir, u), urlWatch+"&timeoutSeconds=1&resourceVersion="+tt.client)
			<-w.done
			if got := w.heard(t); got != tt.want {
				t.Errorf("a client of version %s got %q, want %q", tt.client, got, tt.want)
			}
		})
	}
}

// Invariant 15: where an object's bytes are damaged, what needs them is refused until it is read again,
// and nothing is short. The rest is served.
func TestADamagedRecordIsRefusedUntilItIsReadAgain(t *testing.T) {
	const urlOfA = urlPods + "?fieldSelector=metadata.name%3Da"
	synctest.Test(t, func(t *testing.T) {
		u, dir := newUpstream(), filepath.Join(t.TempDir(), "cache")
		u.on("list", func(r *http.Request) *http.Response {
			if r.URL.Query().Has("fieldSelector") {
				return respond(http.StatusOK, podsJSON("100", podJSON("a", "50")))
			}
			return respond(http.StatusOK, podsJSON("100", podJSON("a", "50"), podJSON("b", "51"), podJSON("d", "52")))
		})
		c, stop := runIn(t, dir, u)
		get(t, c, urlPods)
		get(t, c, urlOfA)
		stop()
		flipObject(t, dir, `"name":"b"`)
		u.goAway()
		c = startIn(t, dir, u)
		for _, url := range []string{urlPods, urlPodB} {
			if got := get(t, c, url); strings.Contains(got, "=") || got == "404" {
				t.Errorf("offline, %s is %q", url, got)
			}
		}
		if res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, urlInitial+"&timeoutSeconds=1")); !errors.Is(err, wal.ErrCorrupt) {
			t.Errorf("initial events are answered with %v, %v", res, err)
		}
		expect(t, c, "offline, a list without it", urlOfA, "100: a=50")
		expect(t, c, "offline, another object of the list", "/api/v1/namespaces/ns/pods/d", "d=52")
		u.comeBack()
		get(t, c, urlPods)
		u.goAway()
		expect(t, c, "read again", urlPods, "100: a=50 b=51 d=52")
	})
}
