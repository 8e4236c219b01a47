package cache

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
