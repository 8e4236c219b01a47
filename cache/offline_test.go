package cache

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/query"
	"github.com/edgehub-io/edgehub/cache/view"
)

func TestAnObjectIsReadAtTheNewestVersionThatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		u.shows("5", podJSON("a", "5"))
		c := startCache(t, u)
		get(t, c, urlPodA) // once, long ago, by a person with kubectl
		v := c.views.Acquire(query.Key{User: query.NodeUser, Version: "v1", Resource: "pods", Representation: "protobuf"})
		fill(t, v, "", "100", true, map[string]string{"a": "90"})
		v.Release()
		u.goAway()
		expect(t, c, "offline", urlPodA, "a=90")
	})
}

func TestAConcurrentChangeDoesNotHarmARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51"))
		v := c.views.Find(podsKey(query.NodeUser))
		before, _ := v.Member("ns/a")
		v.Apply("100", &view.Change{Name: "ns/a", Version: "101", Object: []byte(podJSON("a", "101"))})
		time.Sleep(5 * time.Second) // the old bytes are gone from the disk
		if _, err := v.Read("ns/a", before); err == nil {
			t.Fatal("what was replaced can still be read: this test shows nothing")
		}
		if got, want := shows(t, v), "101 ns/a=101 ns/b=51"; got != want {
			t.Errorf("the view shows %q, want %q", got, want)
		}
	})
}

// A client on a slow link reads an old state to its end, whatever changes meanwhile.
func TestASlowReaderOfAListDoesNotHarmTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u, c := startListed(t, "100", podJSON("a", "50"), podJSON("b", "51", strings.Repeat("x", 300<<10)))
		time.Sleep(5 * time.Second)
		u.goAway()
		res, err := c.RoundTrip(newRequest(t.Context(), http.MethodGet, urlPods))
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 10)
		if _, err := io.ReadFull(res.Body, head); err != nil {
			t.Fatal(err)
		}
		u.comeBack()
		u.shows("200", podJSON("a", "150"))
		get(t, c, urlPods)
		time.Sleep(5 * time.Second)
		rest, err := io.ReadAll(res.Body)
		if err != nil {
			t.Errorf("the slow one: %v", err)
		} else if got := described(t, append(head, rest...)); !strings.HasPrefix(got, "100: a=50 b=51") {
			t.Errorf("the slow one reads %.40q, want what there was when it began", got)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		u.goAway()
		if got, want := get(t, c, urlPods), "200: a=150"; got != want {
			t.Errorf("the next one reads %.40q, want %q", got, want)
		}
	})
}
