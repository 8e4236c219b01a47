package cache

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/store"
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
	c := openCache(t, dir, u)
	stop := runCache(t, c)
	get(t, c, urlPods)
	ask(as(t.Context(), "coredns"), t, c, http.MethodGet, urlPods)
	for n := range 300 { // records
		c.records.Gone(query.UserResource{User: query.NodeUser, Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}}, fmt.Sprintf("ns/gone-%d", n), "100", "u", true)
	}
	u.goAway()
	reportStatus(t, c, "a", "10.0.0.1")
	stop()
	for _, name := range []string{"cache.log", "cache.index"} {
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
		c := openCache(t, dir, u)
		stop := runCache(t, c)
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
		if res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, urlInitial+"&timeoutSeconds=1")); !errors.Is(err, store.ErrCorrupt) {
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
