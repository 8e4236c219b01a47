package cache

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/edgehub-io/edgehub/cache/pages"
)

func TestSharedBytesOfConcurrentListsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newUpstream()
		c := startCache(t, u)
		for i := range 300 { // a client that wants to know no more than whether there is any, again and again
			body := podsJSON("1000", podJSON("a", fmt.Sprint(i+1)))
			u.onText("list", http.StatusOK, strings.Replace(body, `"1000"`, fmt.Sprintf(`"1000","continue":"%d"`, i), 1))
			get(t, c, urlPods+"?limit=2")
			time.Sleep(10 * time.Second)
		}
		if n := shares(c); n > 2*pages.Max {
			t.Errorf("%d states of one object are held, for %d lists that wait for a page", n, c.pages.Len())
		}
		time.Sleep(2 * pages.Timeout)
		if n := shares(c); n != 0 {
			t.Errorf("%d objects are held, and nobody reads", n)
		}
	})
}
